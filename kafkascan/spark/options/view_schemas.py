"""Columns of the views: names, types in Spark and types in Arrow.

The Arrow types must match Spark's: Spark 4.2 and newer compare them, older versions fail later with
an error of the JVM. They are declared here, because this module does not import pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kafkascan.format.suggestions import suggestion
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = dict[str, object]
"""Values of one row, by column name."""

VIEW_NAMES = ("records", "batches", "segments")


@dataclass(frozen=True)
class Column:
    """
    A column of a view.

    Attributes
    ----------
    name : str
    type : str
        Spark's name of the type, such as ``bigint``.
    nullable : bool
        Spark processes columns faster that are not nullable.
    is_default : bool
        Whether the view has the column if the option ``columns`` is not given.
    """

    name: str
    type: str
    nullable: bool = False
    is_default: bool = True

    @property
    def ddl(self) -> str:
        """The column's declaration in Spark SQL."""
        return f"`{self.name}` {self.type}{'' if self.nullable else ' NOT NULL'}"

    @property
    def arrow_field(self) -> pa.Field:
        """The column as an Arrow field."""
        return require_pyarrow().field(self.name, arrow_type(self.type), self.nullable)


def arrow_type(spark_type: str) -> pa.DataType:
    """Return the Arrow type that Spark requires for one of its types."""
    pa = require_pyarrow()
    container, _, inner = spark_type.removesuffix(">").partition("<")
    if container == "array":
        return pa.list_(pa.field("element", arrow_type(inner)))
    if container == "map":
        key, value = inner.split(",")
        return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), True))
    if container == "struct":
        fields = [field.split(":", 1) for field in inner.split(",")]
        return pa.struct([pa.field(name, arrow_type(kind)) for name, kind in fields])
    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }[spark_type]


HEADERS = "array<struct<key:string,value:binary>>"

_PARTITION = (Column("topic", "string"), Column("partition", "int"))

_RECORDS = (
    Column("key", "binary", nullable=True),
    Column("value", "binary", nullable=True),
    *_PARTITION,
    Column("offset", "bigint"),
    Column("timestamp", "timestamp", nullable=True),
    Column("timestampType", "int"),
    Column("headers", HEADERS, nullable=True, is_default=False),
    Column("segment", "bigint", is_default=False),
    Column("path", "string", is_default=False),
    Column("timestampMs", "bigint", is_default=False),
    Column("sequence", "int", is_default=False),
    # From the header of the record's batch.
    Column("position", "bigint", is_default=False),
    Column("batchBaseOffset", "bigint", is_default=False),
    Column("batchLastOffset", "bigint", is_default=False),
    Column("leaderEpoch", "int", is_default=False),
    Column("magic", "tinyint", is_default=False),
    Column("codec", "string", is_default=False),
    Column("producerId", "bigint", is_default=False),
    Column("producerEpoch", "smallint", is_default=False),
    Column("isTransactional", "boolean", is_default=False),
    Column("isControl", "boolean", is_default=False),
)

_BATCHES = (
    *_PARTITION,
    Column("segment", "bigint"),
    Column("path", "string", is_default=False),
    Column("position", "bigint"),
    Column("sizeInBytes", "bigint"),
    Column("baseOffset", "bigint"),
    Column("lastOffset", "bigint"),
    Column("leaderEpoch", "int"),
    Column("magic", "tinyint"),
    Column("crc", "bigint", is_default=False),
    Column("crcOk", "boolean", nullable=True, is_default=False),
    Column("attributes", "smallint", is_default=False),
    Column("codec", "string"),
    Column("timestampType", "int"),
    Column("isTransactional", "boolean"),
    Column("isControl", "boolean"),
    Column("baseTimestampMs", "bigint"),
    Column("maxTimestampMs", "bigint"),
    Column("maxTimestamp", "timestamp", nullable=True, is_default=False),
    Column("deleteHorizonMs", "bigint", is_default=False),
    Column("producerId", "bigint"),
    Column("producerEpoch", "smallint"),
    Column("baseSequence", "int"),
    Column("lastSequence", "int", is_default=False),
    Column("recordCount", "int"),
    Column("status", "string"),
    Column("error", "string", nullable=True),
)

_SEGMENTS = (
    *_PARTITION,
    Column("segment", "bigint"),
    Column("path", "string"),
    Column("size", "bigint"),
    Column("modified", "timestamp", nullable=True),
    Column("batches", "bigint"),
    Column("records", "bigint"),
    Column("uncountedBatches", "bigint"),
    Column("firstOffset", "bigint", nullable=True),
    Column("lastOffset", "bigint", nullable=True),
    Column("minTimestampMs", "bigint", nullable=True),
    Column("maxTimestampMs", "bigint", nullable=True),
    Column("codecs", "map<string,bigint>"),
    Column("magics", "map<int,bigint>"),
    Column("transactionalBatches", "bigint"),
    Column("controlBatches", "bigint"),
    Column("endState", "string"),
    Column("validBytes", "bigint"),
    Column("trailingBytes", "bigint"),
    Column("badChecksums", "bigint", nullable=True, is_default=False),
    Column("indexState", "string"),
    Column("timeIndexState", "string"),
    Column("status", "string"),
    Column("error", "string", nullable=True),
)

FILE_COLUMNS = (
    Column("topic", "string"),
    Column("partition", "int"),
    Column("segment", "bigint"),
    Column("path", "string"),
)
"""The columns of manifests that identify a file."""

VIEWS: dict[str, tuple[Column, ...]] = dict(
    zip(VIEW_NAMES, (_RECORDS, _BATCHES, _SEGMENTS), strict=True)
)


def find_columns(view: str, names: Sequence[str]) -> tuple[Column, ...]:
    """
    Return columns of a view by name. Case is ignored, as in Spark.

    Raises
    ------
    ValueError
        If a name is unknown or repeated.
    """
    known = {column.name.lower(): column for column in VIEWS[view]}
    found = []
    for name in names:
        column = known.get(name.lower())
        if column is None:
            hint = suggestion(name, [column.name for column in VIEWS[view]])
            raise ValueError(f"the view {view!r} has no column {name!r}{hint}")
        if column in found:
            raise ValueError(f"the column {column.name!r} is named twice")
        found.append(column)
    return tuple(found)


def default_columns(view: str) -> tuple[Column, ...]:
    """Return the columns that a view has if the option ``columns`` is not given."""
    return tuple(column for column in VIEWS[view] if column.is_default)


def ddl(columns: Sequence[Column]) -> str:
    """Return the schema as a declaration in Spark SQL."""
    return ", ".join(column.ddl for column in columns)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema in Arrow's types."""
    return require_pyarrow().schema([column.arrow_field for column in columns])
