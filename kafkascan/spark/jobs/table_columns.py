"""Columns of a table that follow those of its rows: new fields are added, types get wider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkascan.spark.options.view_schemas import declaration, quoted
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from kafkascan.spark.jobs.lake_tables import LakeTable

# Types to which Iceberg and Delta change the type of a column.
_WIDER = {
    "int": ("bigint",),
    "smallint": ("int", "bigint"),
    "tinyint": ("smallint", "int", "bigint"),
}
_WIDER |= {"float": ("double",)}


def follow_columns(spark: SparkSession, table: LakeTable, fields: Sequence[Field]) -> None:
    """
    Change the columns of a table so that they can hold those of rows.

    Columns and members of structs that the rows do not have stay, and are null in new rows.

    Raises
    ------
    ValueError
        If a column has a type that cannot become that of the rows.
    """
    for change in column_changes(table, fields):
        try:
            spark.sql(f"ALTER TABLE {table.name} {change}")
        except Exception as error:
            # Another driver may have made the same change, or this one, and its answer was lost.
            if change in column_changes(table, fields):
                reason = str(error).partition("\n")[0]
                hint = "; Delta needs the table property delta.enableTypeWidening to change types"
                is_type = " TYPE " in change and "DELTA" in reason
                raise ValueError(
                    f"{table.name}: {change}: {reason}{hint if is_type else ''}"
                ) from None


def column_changes(table: LakeTable, fields: Sequence[Field]) -> list[str]:
    """Return the changes that `follow_columns` makes, as ALTER TABLE declares them."""
    pa = require_pyarrow()
    wanted = pa.struct([pa.field(one.name, one.arrow_type(is_spark=True)) for one in fields])
    return list(_changes(table.columns(), wanted, table.name, ""))


def _changes(known: DataType, wanted: pa.DataType, table: str, path: str) -> Iterator[str]:
    """Yield the changes of a column or member, as ALTER TABLE declares them."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    types = require_pyarrow().types
    if isinstance(known, StructType) and types.is_struct(wanted):
        for one in wanted:
            name = f"{path}.{quoted(one.name)}" if path else quoted(one.name)
            if one.name in known.names:
                yield from _changes(known[one.name].dataType, one.type, table, name)
            else:
                yield f"ADD COLUMN {name} {declaration(one.type)}"
    elif isinstance(known, ArrayType) and types.is_list(wanted):
        yield from _changes(known.elementType, wanted.value_type, table, f"{path}.element")
    elif isinstance(known, MapType) and types.is_map(wanted):
        yield from _changes(known.keyType, wanted.key_type, table, f"{path}.key")
        yield from _changes(known.valueType, wanted.item_type, table, f"{path}.value")
    else:
        yield from _wider(known.simpleString(), declaration(wanted), table, path)


def _wider(known: str, wanted: str, table: str, path: str) -> Iterator[str]:
    if _holds(wanted, known):
        if wanted != known:
            yield f"ALTER COLUMN {path} TYPE {wanted}"
    elif not _holds(known, wanted):
        as_bytes = ", or read its topic without the option registry" if known == "binary" else ""
        raise ValueError(
            f"{table}: the column {path} is {known}, and the rows have {wanted}:"
            f" drop the table, or write to another one{as_bytes}"
        )


def _holds(kind: str, other: str) -> bool:
    """Whether a type holds all values of another one."""
    if kind.startswith("decimal") and other.startswith("decimal"):
        (precision, scale), (least, same) = _digits(kind), _digits(other)
        return precision >= least and scale == same
    return kind == other or kind in _WIDER.get(other, ())


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)
