"""The same scan on Spark, over a fleet of logs: ``pip install kafkascan[spark]``.

>>> from kafkascan import spark as kafkascan_spark
>>> kafkascan_spark.batches(spark, "/var/lib/kafka/data", columns=["topic", "recordCount"])

`register` makes ``spark.read.format("kafkascan")`` known; `records`, `batches` and `segments` are
the faster door to the same rows. pyspark is imported when one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkascan.spark import jobs
    from kafkascan.spark.conf import recommended_conf
    from kafkascan.spark.frames import batches, records, segments
    from kafkascan.spark.source import register

__all__ = ["batches", "jobs", "recommended_conf", "records", "register", "segments"]

_MODULES = {
    "batches": "frames",
    "records": "frames",
    "segments": "frames",
    "recommended_conf": "conf",
    "register": "source",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "jobs":
        return importlib.import_module(f"{__name__}.jobs")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
