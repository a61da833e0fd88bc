"""Where Spark finds ``kafkascan`` by itself.

Spark imports every package named ``pyspark_…`` that it finds, and gives up on all of them if one
fails. So nothing that could fail is imported before somebody reads.
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
        """Hands everything on to `kafkascan.spark.source.KafkaScanSource`."""

        def __init__(self, options: Mapping[str, str]) -> None:
            from kafkascan.spark.source import KafkaScanSource

            self._source = KafkaScanSource(options)

        @classmethod
        def name(cls) -> str:
            """Return the name that Spark's readers ask for."""
            return "kafkascan"

        def schema(self) -> str:
            """Return the columns."""
            return self._source.schema()

        def reader(self, schema: StructType) -> Any:
            """Return what reads once."""
            return self._source.reader(schema)

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
            """Return what follows logs that grow."""
            return self._source.streamReader(schema)
