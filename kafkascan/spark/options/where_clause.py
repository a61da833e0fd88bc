"""The option ``where``: a condition on batch columns, evaluated before anything is decoded.

An example is ``"producerId == 7 and maxTimestampMs >= 1700000000000"``. A condition that topic,
partition and segment decide is evaluated before a file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.logs.selected_records import Condition, Span, parse_condition

# Names in conditions, and the columns of the batch table.
BATCH_NAMES = {
    "position": "position",
    "sizeInBytes": "size_in_bytes",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "leaderEpoch": "partition_leader_epoch",
    "magic": "magic",
    "crc": "crc",
    "attributes": "attributes",
    "codec": "compression_type",
    "timestampType": "timestamp_type",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "baseTimestampMs": "base_timestamp",
    "maxTimestampMs": "max_timestamp",
    "deleteHorizonMs": "delete_horizon_ms",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "recordCount": "records_count",
}
FILE_NAMES = ("topic", "partition", "segment")

_TEXT_NAMES = ("topic", "codec")

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
        return cls(text, parse_condition(text, (*BATCH_NAMES, *FILE_NAMES), _TEXT_NAMES))

    def may_match_file(self, file: Mapping[str, Any]) -> bool:
        """Whether batches of a file may match, given the values of `FILE_NAMES`."""
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
