"""Jobs on fleets of logs. Spark's tasks do the work and return a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.spark.jobs.fleet_jobs import (
        JobReport as JobReport,
        bad_timestamps as bad_timestamps,
        catalog as catalog,
        export as export,
        producer_stats as producer_stats,
        rebuild_indexes as rebuild_indexes,
        verify as verify,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "fleet_jobs": [
                "JobReport",
                "bad_timestamps",
                "catalog",
                "export",
                "producer_stats",
                "rebuild_indexes",
                "verify",
            ]
        },
    )
