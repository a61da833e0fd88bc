"""Scan fleets of logs on Spark: ``pip install 'kafkascan[spark]'``.

>>> from kafkascan import spark as kafkascan_spark
>>> kafkascan_spark.batches(spark, "/var/lib/kafka/data", columns=["topic", "records_count"])

`records`, `batches` and `segments` return DataFrames. `register` registers a data source for
``spark.read.format("kafkascan")``, which returns the same rows more slowly. `groups`,
`transaction_state`, `metadata`, `remote_segments` and `share_state` return the state that Kafka's
own topics contain. `end_offsets` returns where a read ends, so that another one can start there.
pyspark is imported when one of these functions is used.
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
        end_offsets as end_offsets,
        records as records,
        segments as segments,
    )
    from kafkascan.spark.readers.state_frames import (
        groups as groups,
        metadata as metadata,
        remote_segments as remote_segments,
        share_state as share_state,
        transaction_state as transaction_state,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        packages=["jobs"],
        extra="spark",
        names={
            "options.spark_conf": ["recommended_conf"],
            "readers.frames": ["batches", "end_offsets", "records", "segments"],
            "readers.data_source": ["register"],
            "readers.state_frames": [
                "groups",
                "metadata",
                "remote_segments",
                "share_state",
                "transaction_state",
            ],
        },
    )
