"""Conditions on records and batches: as objects, as text, and the rows that fulfil them."""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    COLUMN_NAMES,
    BatchTable,
    column,
    compression_type,
    last_offset,
    timestamp_bounds,
)
from kafkascan.format.suggestions import suggestion
from kafkascan.records.record_table import RecordTable

Value: TypeAlias = "int | float | str"
MayHold: TypeAlias = "bool | np.bool_ | NDArray[np.bool_]"
Relation: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]


class Span(NamedTuple):
    """
    The smallest and the largest value that records may have: of one place, or one per batch.

    A pair of ``low`` and ``high`` may be wider than the values, never narrower.
    """

    low: Any
    high: Any


Spans: TypeAlias = Mapping[str, "Span | None"]
"""By column. None: all values are null. A column that is missing may have any value."""


class Condition(Protocol):
    """What is known of a condition on records."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose spans decide."""

    def may_hold(self, spans: Spans) -> MayHold:
        """Return False where no record within the spans fulfils the condition."""


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value; a null fulfils no comparison."""

    column: str
    relation: Relation
    value: Value

    @property
    def columns(self) -> frozenset[str]:
        """The compared column."""
        return frozenset([self.column])

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        if self.column not in spans:
            return True
        span = spans[self.column]
        return span is not None and _RELATIONS[self.relation](span, self.value)


MIRRORED: dict[Relation, Relation] = {
    "<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!=",
}  # fmt: skip
"""The relations of the operands in the other order."""

_NEGATED: dict[Relation, Relation] = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==",
}  # fmt: skip
_RELATIONS: dict[Relation, Callable[[Span, Value], MayHold]] = {
    "<": lambda span, value: span.low < value,
    "<=": lambda span, value: span.low <= value,
    ">": lambda span, value: span.high > value,
    ">=": lambda span, value: span.high >= value,
    "==": lambda span, value: np.logical_and(span.low <= value, span.high >= value),
    "!=": lambda span, value: np.logical_or(span.low != value, span.high != value),
}


@dataclass(frozen=True)
class Membership:
    """A column whose value is one of several, or none of them."""

    column: str
    values: Sequence[Value]
    is_excluded: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset([self.column])

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        if self.column not in spans:
            return True
        span = spans[self.column]
        if span is None:
            return False
        if not self.values:
            return self.is_excluded
        ordered = np.array(sorted(self.values))
        below = np.searchsorted(ordered, span.low, "left")
        found: MayHold = below < np.searchsorted(ordered, span.high, "right")
        if self.is_excluded:
            found = np.logical_or(span.low != span.high, np.logical_not(found))
        return found


@dataclass(frozen=True)
class Joined:
    """Conditions of which all hold, or any; all of none hold."""

    parts: tuple[Condition, ...]
    is_any: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns of all parts."""
        return frozenset().union(*(part.columns for part in self.parts))

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        join = operator.or_ if self.is_any else operator.and_
        return reduce(join, (part.may_hold(spans) for part in self.parts), not self.is_any)


EVERY_RECORD = Joined(())
"""The condition that all records fulfil."""


class RowRange(NamedTuple):
    """Ranges of offsets and of times in milliseconds since the epoch; None means no limit."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return any(one is not None for one in self)

    def condition(self, first: str, last: str, time: str) -> Condition:
        """
        Return the ranges as a condition on columns.

        Parameters
        ----------
        first, last, time : str
            The columns of the first and the last offset of a row, and of its time.
        """
        limits: tuple[tuple[str, Relation, int | None], ...] = (
            (last, ">=", self.from_offset),
            (first, "<", self.to_offset),
            (time, ">=", self.from_time),
            (time, "<", self.to_time),
        )
        return Joined(
            tuple(
                Comparison(name, relation, value)
                for name, relation, value in limits
                if value is not None
            )
        )


# ---- masks -------------------------------------------------------------------------------------

_LOWEST = np.iinfo(np.int64).min
_MAGIC_V2 = 2


def mask_batches(
    condition: Condition, batches: BatchTable, place: Spans | None = None
) -> NDArray[np.bool_]:
    """
    Return the batches that may contain records that fulfil a condition, by their headers.

    Parameters
    ----------
    condition : Condition
        On ``offset`` and ``timestamp`` of records and columns of the batch table.
    batches : array of BATCH_DTYPE, shape (n,)
    place : mapping, optional
        The spans of what all batches have in common.
    """
    spans = {**(place or {}), **_batch_spans(batches, condition.columns)}
    return np.array(np.broadcast_to(np.asarray(condition.may_hold(spans)), len(batches)))


def mask_records(condition: Condition, records: RecordTable) -> NDArray[np.bool_]:
    """Return the records that may fulfil a condition, by their ``offset`` and ``timestamp``."""
    known = condition.columns & {"offset", "timestamp"}
    spans = {name: Span(records[name], records[name]) for name in known}
    return np.array(np.broadcast_to(np.asarray(condition.may_hold(spans)), len(records)))


def _batch_spans(batches: BatchTable, names: frozenset[str]) -> Spans:
    spans: dict[str, Span | None] = {}
    for name in names & set(COLUMN_NAMES):
        values = column(batches, name)
        spans[name] = Span(values, values)
    if "offset" in names:
        spans["offset"] = _offset_span(batches)
    if "timestamp" in names:
        spans["timestamp"] = Span(*timestamp_bounds(batches))
    return spans


def _offset_span(batches: BatchTable) -> Span:
    """Return the offsets of records. The header of a compressed message has the last one only."""
    is_wrapper = (batches["magic"] < _MAGIC_V2) & (compression_type(batches) != 0)
    return Span(np.where(is_wrapper, _LOWEST, batches["base_offset"]), last_offset(batches))


# ---- text --------------------------------------------------------------------------------------

_RELATION_OF: dict[type[ast.cmpop], Relation] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
# A quoted string, or a word or operator that SQL and Python write differently.
_SQL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|<>|(?<![<>=!])=(?!=)|\b[A-Za-z]+\b")
_SQL_WORDS = {"<>": "!=", "=": "==", "true": "True", "false": "False"}
_KEYWORDS = ("and", "or", "not", "in")


def parse_condition(text: str, names: Collection[str], texts: Collection[str]) -> Condition:
    """
    Parse a condition: comparisons of columns with constants.

    Parameters
    ----------
    text : str
        Comparisons (``== != < <= > >= in``, also SQL's ``=`` and ``<>``) of columns with numbers,
        strings and booleans, combined with ``and``, ``or``, ``not`` and parentheses.
    names : collection of str
        The columns; the text may have them in any case.
    texts : collection of str
        Those of strings.

    Raises
    ------
    ValueError
        If the text is not such a condition.
    """
    try:
        tree = ast.parse(_SQL.sub(_as_python, text).strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"where: {text!r} is not a condition: {error.msg}") from None
    return _Parser(names, texts).condition(tree)


class _Parser:
    """Turns the syntax tree of a condition into a `Condition`, which has no negations."""

    def __init__(self, names: Collection[str], texts: Collection[str]) -> None:
        self._names = {name.lower(): name for name in names}
        self._texts = texts

    def condition(self, node: ast.expr, is_negated: bool = False) -> Condition:
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value, is_negated) for value in node.values]
            return Joined(tuple(parts), is_any=isinstance(node.op, ast.Or) != is_negated)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.condition(node.operand, not is_negated)
        if isinstance(node, ast.Name):
            return Comparison(self._column(node), "!=" if is_negated else "==", True)
        if not isinstance(node, ast.Compare):
            raise _unexpected(node)
        pairs = itertools.pairwise((node.left, *node.comparators))
        compared = zip(node.ops, pairs, strict=True)
        parts = [self._compared(kind, *pair, is_negated) for kind, pair in compared]
        return Joined(tuple(parts), is_any=is_negated)

    def _compared(
        self, kind: ast.cmpop, left: ast.expr, right: ast.expr, is_negated: bool
    ) -> Condition:
        if isinstance(kind, (ast.In, ast.NotIn)):
            column = self._column(left)
            values = self._constants(column, right)
            return Membership(column, values, isinstance(kind, ast.NotIn) != is_negated)
        if type(kind) not in _RELATION_OF:
            raise _unexpected(left)
        relation = _RELATION_OF[type(kind)]
        if isinstance(right, ast.Name):
            left, right, relation = right, left, MIRRORED[relation]
        column = self._column(left)
        (value,) = self._constants(column, right)
        return Comparison(column, _NEGATED[relation] if is_negated else relation, value)

    def _column(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise _unexpected(node)
        if node.id.lower() not in self._names:
            hint = suggestion(node.id, self._names.values())
            raise ValueError(f"where: there is no batch column {node.id!r}{hint}")
        return self._names[node.id.lower()]

    def _constants(self, column: str, node: ast.expr) -> Sequence[Value]:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            raise _unexpected(node) from None
        values = list(value) if isinstance(value, (tuple, list, set)) else [value]
        kinds = (str,) if column in self._texts else (int, float)
        if not all(isinstance(one, kinds) for one in values):
            raise _unexpected(node)
        return values


def _unexpected(node: ast.expr) -> ValueError:
    return ValueError(f"where: {ast.unparse(node)!r} is not part of a condition")


def _as_python(match: re.Match[str]) -> str:
    word = match[0]
    if word.lower() in _KEYWORDS:
        return word.lower()
    return _SQL_WORDS.get(word.lower(), word)
