"""Columns of messages beside the messages that the decoder for one record returns."""

from __future__ import annotations

import math
import uuid
from typing import Any

from kafkascan.internal_topics.message_columns import DecodedTopic

Row = tuple[dict[str, Any] | None, dict[str, Any] | None, int]


def rows_of(decoded: DecodedTopic) -> dict[int, tuple[int, Row]]:
    """Return type, key, value and version of each message, by the row of its record."""
    found: dict[int, tuple[int, Row]] = {}
    for code, one in decoded.messages.items():
        one.values.validate(full=True)
        keys = [None] * len(one.rows) if one.keys is None else one.keys.to_pylist()
        columns = zip(one.rows.tolist(), keys, one.values.to_pylist(), one.versions, strict=True)
        for row, key, value, version in columns:
            assert row not in found
            found[row] = code, (key, value, int(version))
    return found


def as_arrow(value: Any) -> Any:
    """Return a value of a message as Arrow has it: ids as bytes, NaN comparable."""
    if isinstance(value, dict):
        return {name: as_arrow(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_arrow(one) for one in value]
    if isinstance(value, uuid.UUID):
        return value.bytes
    return str(value) if isinstance(value, float) and math.isnan(value) else value
