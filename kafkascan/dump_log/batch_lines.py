"""The lines of batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import JAVA_JSON, NAME, NUMBER, LineForm
from kafkascan.batches.columns import (
    BatchTable,
    compression_type,
    delete_horizon_ms,
    is_control,
    is_transactional,
    last_offset,
    last_sequence,
    size_in_bytes,
    timestamp_type,
)
from kafkascan.batches.verify import crc_of_bytes, verify_rows
from kafkascan.dump_log.log_frames import Frame
from kafkascan.format.layout import (
    BATCH_HEADER_SIZE,
    NO_TIMESTAMP,
    CompressionType,
    TimestampType,
)
from kafkascan.io.sources import Source, read_bytes

_TIMESTAMP_TYPES = tuple(kind.display_name for kind in TimestampType)
_CODECS = tuple(kind.display_name for kind in CompressionType)
_TYPE, _TIME = "timestampType", "maxTimestamp"
_MAGIC_V2 = 2
# The checksum of a batch of magic 2 covers what follows it.
_COVERED_FROM, _CRC_SIZE = 21, 4

Part = tuple[object, ...]
Lines = tuple[tuple[LineForm, ...], NDArray[np.uint8]]
"""Forms of lines, and the form of each line."""


def number_part(literal: bytes, values: NDArray[np.generic]) -> Part:
    """Return a part that prints a column of numbers."""
    return NUMBER, literal, values.astype(np.int64)


def name_part(literal: bytes, values: NDArray[np.generic], names: tuple[bytes, ...]) -> Part:
    """Return a part that prints one of some names for each number."""
    return NAME, literal, values.astype(np.int64), names


def timestamp_type_part(batches: BatchTable, of_line: NDArray[np.int32]) -> Part:
    """Return a part that prints the timestamp type of each line's batch."""
    kinds = timestamp_type(batches) - min(TimestampType)
    return name_part(b" ", kinds[of_line], tuple(one.encode() for one in _TIMESTAMP_TYPES))


class BatchField(NamedTuple):
    """A property of batches: numbers, or one of some texts, booleans and optional numbers."""

    name: str
    values: NDArray[np.generic]
    choices: tuple[object, ...] = ()

    def part(self, literal: bytes, text: Callable[[Any], str]) -> Part:
        """Return a part that prints the property; `text` returns that of a choice."""
        if not self.choices:
            return number_part(literal, self.values)
        return name_part(literal, self.values, tuple(text(one).encode() for one in self.choices))


def batch_lines(
    source: Source, batches: BatchTable, frame: Frame | None = None, *, is_json: bool = False
) -> Lines:
    """
    Return the lines of batches.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE, shape (n,)
    frame : Frame, optional
        Of a single batch that no scan accepts, see `framed_batches`.
    is_json : bool, default False
        Whether a line is a JSON object.

    Returns
    -------
    Lines
    """
    magic = batches["magic"] if frame is None else np.array([frame.magic])
    valid = verify_rows(source, batches) if frame is None else np.array([_is_valid(source, frame)])
    common = [
        BatchField("position", batches["position"]),
        BatchField(_TYPE, timestamp_type(batches) - min(TimestampType), _TIMESTAMP_TYPES),
        BatchField(_TIME, batches["max_timestamp"]),
        BatchField("size", size_in_bytes(batches)),
        BatchField("magic", magic),
        BatchField("compresscodec", compression_type(batches), _CODECS),
        BatchField("crc", batches["crc"]),
        BatchField("isvalid", valid, (False, True)),
    ]
    legacy = [BatchField("offset", last_offset(batches))]
    make = _json_form if is_json else _plain_form
    forms = make(legacy + common), make(_v2_fields(batches) + common)
    return forms, (batches["magic"] >= _MAGIC_V2).astype(np.uint8)


def _plain_form(fields: list[BatchField]) -> LineForm:
    """Return a line of the tool: the type of the timestamp is also its name."""
    literals = {_TYPE: " ", _TIME: ": ", fields[0].name: f"{fields[0].name}: "}
    return LineForm(
        [one.part(literals.get(one.name, f" {one.name}: ").encode(), _plain) for one in fields]
    )


def _json_form(fields: list[BatchField]) -> LineForm:
    begins = ['{"kind": "batch", ', *[", "] * len(fields)]
    named = zip(begins, fields, strict=False)
    parts = [one.part(f'{begin}"{one.name}": '.encode(), json.dumps) for begin, one in named]
    return LineForm(parts, JAVA_JSON, b"}\n")


def _plain(choice: bool | int | str | None) -> str:
    if isinstance(choice, bool):
        return str(choice).lower()
    return (
        choice
        if isinstance(choice, str)
        else optional_long(NO_TIMESTAMP if choice is None else choice)
    )


def _is_valid(source: Source, frame: Frame) -> bool:
    if frame.size < BATCH_HEADER_SIZE:
        return False
    start, stop = frame.position + _COVERED_FROM, frame.position + frame.size
    stored = int.from_bytes(read_bytes(source, start - _CRC_SIZE, _CRC_SIZE), "big")
    return crc_of_bytes(source, start, stop, _MAGIC_V2) == stored


def _v2_fields(batches: BatchTable) -> list[BatchField]:
    horizons = delete_horizon_ms(batches)
    # Few batches have one.
    found, horizon_of = np.unique(horizons, return_inverse=True)
    known = tuple(None if one == NO_TIMESTAMP else one for one in found.tolist())
    return [
        BatchField("baseOffset", batches["base_offset"]),
        BatchField("lastOffset", last_offset(batches)),
        BatchField("count", batches["records_count"]),
        BatchField("baseSequence", batches["base_sequence"]),
        BatchField("lastSequence", last_sequence(batches)),
        BatchField("producerId", batches["producer_id"]),
        BatchField("producerEpoch", batches["producer_epoch"]),
        BatchField("partitionLeaderEpoch", batches["partition_leader_epoch"]),
        BatchField("isTransactional", is_transactional(batches), (False, True)),
        BatchField("isControl", is_control(batches), (False, True)),
        BatchField("deleteHorizonMs", horizon_of, known),
    ]


def optional_long(value: int) -> str:
    """Return the text of Java's ``OptionalLong``; -1 is none."""
    return "OptionalLong.empty" if value == NO_TIMESTAMP else f"OptionalLong[{value}]"
