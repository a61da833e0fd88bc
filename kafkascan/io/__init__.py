"""Input and output: sources, folders, archives, atomic files, concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.io.folders import (
        SideFileTooLargeError as SideFileTooLargeError,
    )
    from kafkascan.io.source_protocols import (
        FileRange as FileRange,
        ReadsAt as ReadsAt,
    )
    from kafkascan.io.sources import (
        Source as Source,
        SourceLike as SourceLike,
    )
    from kafkascan.io.stores.urls import (
        ObjectUrl as ObjectUrl,
        Place as Place,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "folders": ["SideFileTooLargeError"],
            "source_protocols": ["FileRange", "ReadsAt"],
            "sources": ["Source", "SourceLike"],
            "stores.urls": ["ObjectUrl", "Place"],
        },
    )
