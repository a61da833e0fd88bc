"""Scan fleets of logs on Spark: ``pip install kafkascan[spark]``.

>>> from kafkascan import spark as kafkascan_spark
>>> kafkascan_spark.batches(spark, "/var/lib/kafka/data", columns=["topic", "recordCount"])

`records`, `batches` and `segments` return DataFrames. `register` registers a data source for
``spark.read.format("kafkascan")``, which returns the same rows more slowly. pyspark is imported
when one of these functions is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.spark import jobs as jobs
    from kafkascan.spark.options.spark_conf import recommended_conf as recommended_conf
    from kafkascan.spark.readers.data_source import register as register
    from kafkascan.spark.readers.frames import (
        batches as batches,
        records as records,
        segments as segments,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        packages=["jobs"],
        names={
            "options.spark_conf": ["recommended_conf"],
            "readers.frames": ["batches", "records", "segments"],
            "readers.data_source": ["register"],
        },
    )
