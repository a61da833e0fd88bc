"""Conditions on records, as far as they decide which partitions, segments and batches are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = "int | str"
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
    """A column whose value is one of several."""

    column: str
    values: Sequence[Value]

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset([self.column])

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        if self.column not in spans:
            return True
        span = spans[self.column]
        if span is None or not self.values:
            return False
        ordered = np.array(sorted(self.values))
        below = np.searchsorted(ordered, span.low, "left")
        found: MayHold = below < np.searchsorted(ordered, span.high, "right")
        return found


@dataclass(frozen=True)
class Joined:
    """Conditions of which all hold, or any."""

    parts: tuple[Condition, ...]
    is_any: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns of all parts."""
        return frozenset().union(*(part.columns for part in self.parts))

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        join = operator.or_ if self.is_any else operator.and_
        return reduce(join, (part.may_hold(spans) for part in self.parts))


@dataclass(frozen=True)
class Undecided:
    """A condition of which nothing is known."""

    @property
    def columns(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def may_hold(self, spans: Spans) -> MayHold:
        """See `Condition`."""
        return True
