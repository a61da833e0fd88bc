"""Logs as lazy Polars frames; needs Polars 1.36 or later."""

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.polars.lazy_records import (
        scan_records as scan_records,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__, names={"lazy_records": ["scan_records"]}, extra="polars"
    )
