"""A one-page HTML report about log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.report.page import (
        Report as Report,
        build_report as build_report,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "page": ["Report", "build_report"],
        },
    )
