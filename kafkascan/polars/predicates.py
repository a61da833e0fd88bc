"""Polars predicates as conditions that decide which partitions, segments and batches are read.

Polars has no stable form of an expression that other libraries may parse. So an expression is
compared with what its parts give when they are combined again, by ``Expr.meta.eq``. What equals no
known combination is `Undecided`, and only Polars evaluates it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Literal

import polars as pl

from kafkascan.logs.selecting.conditions import (
    Comparison,
    Condition,
    Joined,
    Membership,
    Relation,
    Undecided,
    Value,
)

_RELATIONS: dict[Relation, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED: dict[Relation, Relation] = {
    "<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!=",
}  # fmt: skip
_BOUNDS: dict[Literal["both", "left", "right", "none"], tuple[Relation, Relation]] = {
    "both": (">=", "<="),
    "left": (">=", "<"),
    "right": (">", "<="),
    "none": (">", "<"),
}
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
    if len(parts) == 3:
        return _between(predicate, parts, schema)
    return Undecided()


def _comparison(
    predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema
) -> Condition | None:
    for relation, compare in _RELATIONS.items():
        if predicate.meta.eq(compare(parts[0], parts[1])):
            compared = _compared(parts[0], relation, parts[1], schema)
            return compared or _compared(parts[1], _MIRRORED[relation], parts[0], schema)
    return None


def _compared(
    column: pl.Expr, relation: Relation, value: pl.Expr, schema: pl.Schema
) -> Comparison | None:
    name = _column_name(column, schema)
    values = None if name is None else _values(value, schema[name])
    return Comparison(name, relation, values[0]) if name and values else None


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
    values = _values(parts[1], pl.List(schema[name]))
    return Undecided() if values is None else Membership(name, values)


def _column_name(expression: pl.Expr, schema: pl.Schema) -> str | None:
    names = expression.meta.root_names()
    is_column = len(names) == 1 and names[0] in schema and expression.meta.eq(pl.col(names[0]))
    return names[0] if is_column and _is_ordered(schema[names[0]]) else None


def _is_ordered(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype in (pl.String, pl.Datetime("ms", "UTC"))


def _is_literal(expression: pl.Expr) -> bool:
    return expression.meta.is_literal(allow_aliasing=True)


def _values(expression: pl.Expr, dtype: pl.DataType) -> list[Value] | None:
    """Return the values of a literal of a type; None for nulls and for other expressions."""
    if not _is_literal(expression):
        return None
    found = pl.select(expression).to_series()
    if found.dtype != dtype:
        return None
    if isinstance(dtype, pl.List):
        found = found.explode()
    values: list[Value] = found.to_physical().to_list()
    return None if None in values or not values else values
