"""Jobs on fleets of logs. Spark's tasks do the work and return a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.spark.jobs.fleet_jobs import (
        JobReport as JobReport,
        catalog as catalog,
        export as export,
        rebuild_indexes as rebuild_indexes,
        verify as verify,
    )
    from kafkascan.spark.jobs.table_jobs import (
        table_offsets as table_offsets,
        write_table as write_table,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "fleet_jobs": [
                "JobReport",
                "catalog",
                "export",
                "rebuild_indexes",
                "verify",
            ],
            "table_jobs": ["table_offsets", "write_table"],
        },
    )
