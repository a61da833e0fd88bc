"""The data source ``kafkascan`` in a package that Spark discovers.

Spark imports every package named ``pyspark_…`` and discovers none of them if one import fails. So
this package imports nothing that may fail before a query uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no pyspark, or one before 4.0
    pass
else:
    if TYPE_CHECKING:
        from collections.abc import Mapping

        from pyspark.sql.types import StructType

    __all__ = ["DefaultSource"]

    class DefaultSource(DataSource):
        """Delegates to `kafkascan.spark.readers.data_source.KafkaScanSource`."""

        def __init__(self, options: Mapping[str, str]) -> None:
            from kafkascan.spark.readers.data_source import KafkaScanSource

            self._source = KafkaScanSource(options)

        @classmethod
        def name(cls) -> str:
            """Return the name for ``spark.read.format``."""
            return "kafkascan"

        def schema(self) -> str:
            """Return the columns, which depend only on the options."""
            return self._source.schema()

        def reader(self, schema: StructType) -> Any:
            """Return the reader of a batch query."""
            return self._source.reader(schema)

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
            """Return the reader of a stream."""
            return self._source.streamReader(schema)
