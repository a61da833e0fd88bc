"""The views of logs: their columns, and these as declarations in Spark SQL and in Arrow's types.

The Arrow types must match Spark's: Spark 4.2 and newer compare them, older versions fail later with
an error of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kafkascan.batches.batch_schemas import BATCH_SCHEMA, SEGMENT_SCHEMA
from kafkascan.format.suggestions import suggestion
from kafkascan.records.record_schemas import RAW_SCHEMA, RECORD_SCHEMA
from kafkascan.tables.schema import (
    PARTITION,
    SEGMENT,
    TOPIC,
    Field,
    Schema,
    Shown,
    require_pyarrow,
    schemas_by_name,
    spark_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = dict[str, object]
"""Values of one row, by column name."""

FILE_FIELDS = (
    replace(TOPIC, nullable=False),
    replace(PARTITION, nullable=False),
    replace(SEGMENT, nullable=False, shown=Shown.WIDE),
    Field("path", "string", "path or URL of the segment", "path", nullable=False,
          shown=Shown.WIDE),
)  # fmt: skip
"""The columns that identify a file. Spark processes columns faster that are not nullable."""

HEADERS = replace(RECORD_SCHEMA["headers"], nullable=True)
STATUS = Field("status", "string", "OK if checksums are right, HEADERS_OK if only headers were"
               " read, or the symbol of the damage", nullable=False, shown=Shown.WIDE)  # fmt: skip
ERROR = Field("error", "string", "message about the damage", shown=Shown.BELOW)

# The columns of Spark's own Kafka source, with its names and types.
_KAFKA_SOURCE = (
    RECORD_SCHEMA["key"],
    RECORD_SCHEMA["value"],
    *FILE_FIELDS[:2],
    RECORD_SCHEMA["offset"],
    RECORD_SCHEMA["timestamp"],
    Field("timestampType", "int32", "0 for CreateTime, 1 for LogAppendTime", nullable=False),
)
_BATCH_OF_RECORD = (
    "position", "base_offset", "last_offset", "partition_leader_epoch", "magic",
    "compression_type", "producer_id", "producer_epoch", "is_transactional", "is_control",
)  # fmt: skip

_RECORDS = Schema(
    "records",
    (
        *_KAFKA_SOURCE,
        HEADERS,
        *FILE_FIELDS[2:],
        RECORD_SCHEMA["sequence"],
        *BATCH_SCHEMA.select(_BATCH_OF_RECORD),
        *RAW_SCHEMA,
    ),
)
_BATCHES = Schema(
    "batches",
    (
        *FILE_FIELDS,
        *BATCH_SCHEMA,
        Field("crc_is_valid", "bool", "whether the checksum is right; null if not verified"),
        STATUS,
        ERROR,
    ),
)
_SEGMENTS = Schema(
    "segments",
    tuple(
        # Null if checksums are not verified.
        replace(one, nullable=True) if one.name == "bad_checksums" else one
        for one in (
            *SEGMENT_SCHEMA.with_first(FILE_FIELDS),
            Field("modified", "time", "time of the last modification"),
            Field("index_state", "string", "OK, MISSING, DAMAGED, WRONG or UNKNOWN",
                  nullable=False),
            Field("time_index_state", "string", "OK, MISSING, DAMAGED, WRONG or UNKNOWN",
                  nullable=False),
            STATUS,
            ERROR,
        )
    ),
)  # fmt: skip

VIEWS = schemas_by_name(_RECORDS, _BATCHES, _SEGMENTS)
VIEW_NAMES = tuple(VIEWS)

# Arrow's types of typed columns as Spark SQL spells them.
_SQL_NAMES: Mapping[str, str] = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "float": "float", "double": "double", "string": "string", "binary": "binary",
    "date32[day]": "date", "timestamp[us]": "timestamp_ntz", "timestamp[us, tz=UTC]": "timestamp",
    "duration[us]": "interval day to second",
}  # fmt: skip

# Columns that a view has only if the option `columns` names them.
_ON_REQUEST: dict[str, frozenset[str]] = {
    "records": frozenset(_RECORDS.names).difference(one.name for one in _KAFKA_SOURCE),
    "batches": frozenset(
        ("path", "batch_length", "crc", "attributes", "last_offset_delta", "next_offset",
         "last_sequence", "delete_horizon_ms", "crc_is_valid")
    ),
    "segments": frozenset(["bad_checksums"]),
}  # fmt: skip


def find_columns(view: str, names: Sequence[str]) -> tuple[Field, ...]:
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
            hint = suggestion(name, VIEWS[view].names)
            raise ValueError(f"the view {view!r} has no column {name!r}{hint}")
        if column in found:
            raise ValueError(f"the column {column.name!r} is named twice")
        found.append(column)
    return tuple(found)


def default_columns(view: str) -> tuple[Field, ...]:
    """Return the columns that a view has if the option ``columns`` is not given."""
    return tuple(column for column in VIEWS[view] if column.name not in _ON_REQUEST[view])


def ddl(columns: Iterable[Field]) -> str:
    """Return the schema as a declaration in Spark SQL."""
    return ", ".join(
        f"`{one.name}` {declared_type(one)}{'' if one.nullable else ' NOT NULL'}" for one in columns
    )


def declared_type(one: Field) -> str:
    """Return the type of a column as Spark SQL spells it."""
    return spark_type(one.type) if one.arrow is None else declaration(one.arrow)


def declaration(kind: pa.DataType) -> str:
    """Return a type of Spark's, given as Arrow's, as Spark SQL spells it."""
    types = require_pyarrow().types
    if types.is_struct(kind):
        members = (f"{quoted(one.name)}:{declaration(one.type)}" for one in kind)
        return f"struct<{','.join(members)}>"
    if types.is_map(kind):
        return f"map<{declaration(kind.key_type)},{declaration(kind.item_type)}>"
    if types.is_list(kind):
        return f"array<{declaration(kind.value_type)}>"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SQL_NAMES[str(kind)]


def quoted(name: str) -> str:
    """Return a name as Spark SQL spells it."""
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(columns: Iterable[Field]) -> pa.Schema:
    """Return the schema in Arrow's types."""
    pa = require_pyarrow()
    return pa.schema(
        [pa.field(one.name, one.arrow_type(is_spark=True), one.nullable) for one in columns]
    )
