"""Polars predicates as conditions that decide which partitions, segments and batches are read.

Polars has no stable form of an expression that other libraries may parse. So an expression is
compared with what its parts give when they are combined again, by ``Expr.meta.eq``. What equals no
known combination is `Undecided`, and only Polars evaluates it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import polars as pl

from kafkascan.logs.selecting.conditions import (
    MIRRORED,
    Comparison,
    Condition,
    Joined,
    Membership,
    Relation,
    Undecided,
)

TimeUnit: TypeAlias = Literal["ms", "us", "ns"]

_RELATIONS: dict[Relation, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BOUNDS: dict[Literal["both", "left", "right", "none"], tuple[Relation, Relation]] = {
    "both": (">=", "<="),
    "left": (">=", "<"),
    "right": (">", "<="),
    "none": (">", "<"),
}
_TIMES: dict[TimeUnit, pl.Datetime] = {
    "ms": pl.Datetime("ms", "UTC"),
    "us": pl.Datetime("us", "UTC"),
    "ns": pl.Datetime("ns", "UTC"),
}
_UNITS_PER_MS: dict[TimeUnit, int] = {"us": 1_000, "ns": 1_000_000}
# Deeper expressions are rare, and Python's stack is not endless.
_MOST_LEVELS = 100


def condition_of(predicate: pl.Expr, schema: pl.Schema, levels: int = _MOST_LEVELS) -> Condition:
    """
    Return what a predicate says about columns of integers, timestamps and text.

    Parameters
    ----------
    predicate : polars.Expr
    schema : polars.Schema
        Of the frame. A comparison with a value of another type decides nothing.
    levels : int
        Depth up to which the expression is read.

    Returns
    -------
    Condition
        Holds wherever the predicate is true.
    """
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2 and levels:
        for join in (operator.and_, operator.or_):
            if predicate.meta.eq(join(*parts)):
                inner = tuple(condition_of(part, schema, levels - 1) for part in parts)
                return Joined(inner, is_any=join is operator.or_)
        return _comparison(predicate, parts, schema) or _membership(predicate, parts, schema)
    if len(parts) == 3 and levels:
        return _unless_null(predicate, parts, schema, levels) or _between(predicate, parts, schema)
    return Undecided()


def _unless_null(
    predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema, levels: int
) -> Condition | None:
    """Return the condition of an expression that a null replaces; DuckDB asks for ``IN`` so."""
    then, otherwise, when = parts
    is_null = _is_literal(then) and pl.select(then).to_series().to_list() == [None]
    if is_null and predicate.meta.eq(pl.when(when).then(then).otherwise(otherwise)):
        return condition_of(otherwise, schema, levels - 1)
    return None


def _comparison(
    predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema
) -> Condition | None:
    for relation, compare in _RELATIONS.items():
        if predicate.meta.eq(compare(parts[0], parts[1])):
            compared = _compared(parts[0], relation, parts[1], schema)
            return compared or _compared(parts[1], MIRRORED[relation], parts[0], schema)
    return None


def _compared(
    column: pl.Expr, relation: Relation, value: pl.Expr, schema: pl.Schema
) -> Comparison | None:
    name = _column_name(column, schema)
    if name is None:
        return _compared_finely(column, relation, value, schema)
    values = _values(value, schema[name])
    return Comparison(name, relation, values[0]) if values and len(values) == 1 else None


def _compared_finely(
    column: pl.Expr, relation: Relation, value: pl.Expr, schema: pl.Schema
) -> Comparison | None:
    """Return a comparison with a time of a finer unit; DuckDB's are in microseconds."""
    names = column.meta.root_names()
    name = _column_name(pl.col(names[0]), schema) if len(names) == 1 else None
    if name is None or schema[name] != _TIMES["ms"]:
        return None
    for unit, scale in _UNITS_PER_MS.items():
        values = _values(value, _TIMES[unit])
        if values and len(values) == 1 and column.meta.eq(pl.col(name).dt.cast_time_unit(unit)):
            milliseconds, rest = divmod(int(values[0]), scale)
            if rest and relation in ("==", "!="):
                return None
            # Between two milliseconds, the upper one is the first that is not below the time.
            is_rounded_up = rest and relation in (">=", "<")
            return Comparison(name, relation, milliseconds + bool(is_rounded_up))
    return None


def _between(predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema) -> Condition:
    column, low, high = parts
    for closed, (above, below) in _BOUNDS.items():
        if predicate.meta.eq(column.is_between(low, high, closed=closed)):
            bounds = (
                _compared(column, above, low, schema),
                _compared(column, below, high, schema),
            )
            return Joined(tuple(bound or Undecided() for bound in bounds))
    return Undecided()


def _membership(predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema) -> Condition:
    name = _column_name(parts[0], schema)
    if name is None or not _is_literal(parts[1]):
        return Undecided()
    if not predicate.meta.eq(parts[0].is_in(parts[1])):
        return Undecided()
    values = _values(parts[1], pl.List(schema[name])) or _values(parts[1], schema[name])
    return Membership(name, values) if values else Undecided()


def _column_name(expression: pl.Expr, schema: pl.Schema) -> str | None:
    names = expression.meta.root_names()
    is_column = len(names) == 1 and names[0] in schema and expression.meta.eq(pl.col(names[0]))
    return names[0] if is_column and _is_ordered(schema[names[0]]) else None


def _is_ordered(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype in (pl.String, _TIMES["ms"])


def _is_literal(expression: pl.Expr) -> bool:
    return expression.meta.is_literal(allow_aliasing=True)


def _values(expression: pl.Expr, dtype: pl.DataType) -> list[int | str] | None:
    """Return the values of a literal of a type; None for nulls and for other expressions."""
    if not _is_literal(expression):
        return None
    found = pl.select(expression).to_series()
    if found.dtype != dtype:
        return None
    if isinstance(dtype, pl.List):
        found = found.explode()
    values: list[int | str] = found.to_physical().to_list()
    return None if None in values or not values else values
