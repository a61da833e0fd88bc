"""The option ``where``: a condition on batch columns, evaluated before anything is decoded.

An example is ``"producer_id == 7 and max_timestamp >= 1700000000000"``. A condition that topic,
partition and segment decide is evaluated before a file is opened. Times are milliseconds since the
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BATCH_SCHEMA
from kafkascan.logs.selected_records import Condition, Span, parse_condition
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC

_FIELDS = (TOPIC, PARTITION, SEGMENT, *BATCH_SCHEMA)
_NAMES = tuple(one.name for one in _FIELDS)
_TEXT_NAMES = tuple(one.name for one in _FIELDS if one.type == "string")

ColumnLookup: TypeAlias = Callable[[str], object]
"""Returns the values of a column, or the single value of a constant column, by name."""


@dataclass(frozen=True)
class WhereClause:
    """
    A parsed condition. Create one with `WhereClause.parse`.

    Attributes
    ----------
    text : str
    condition : Condition
    """

    text: str
    condition: Condition

    @classmethod
    def parse(cls, text: str) -> WhereClause:
        """Parse a condition, as `parse_condition` does."""
        return cls(text, parse_condition(text, _NAMES, _TEXT_NAMES))

    def may_match_file(self, file: Mapping[str, Any]) -> bool:
        """Whether batches of a file may match, given its topic, partition and segment."""
        spans = {name: Span(value, value) for name, value in file.items()}
        return bool(self.condition.may_hold(spans))

    def mask(self, look_up: ColumnLookup, count: int) -> NDArray[np.bool_]:
        """
        Return a mask of the batches that match.

        Parameters
        ----------
        look_up : callable
        count : int
            Number of batches.
        """
        values = {name: look_up(name) for name in self.condition.columns}
        spans = {name: Span(value, value) for name, value in values.items()}
        return np.broadcast_to(np.asarray(self.condition.may_hold(spans)), (count,))
