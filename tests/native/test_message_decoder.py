"""The loop that decodes messages into columns: too little room, and what it does not run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kafkascan._core.message_columns import MessageDecoder
from kafkascan.format.schemas.message_decoder import Array, Field, Schema
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.internal_topics.message_columns import _ColumnBuffers
from kafkascan.internal_topics.message_program import MessagePrograms, compile_message

PAIR = Schema("pair", (Field("a", "int16"), Field("b", "bytes", nullable_since=0)))
TAGGED = (
    Field("tagged_text", "string", tag=0, default=""),
    Field("tagged_number", "int64", tag=1, default=-1),
    Field("tagged_pair", PAIR, nullable_since=0, tag=2),
)
SCHEMA = Schema(
    "message",
    (
        Field("number", "int32"),
        Field("is_set", "bool"),
        Field("id", "uuid"),
        Field("text", "string", nullable_since=0),
        Field("bytes", "bytes", nullable_since=0),
        Field("numbers", Array("int64"), nullable_since=0),
        Field("texts", Array("string"), nullable_since=0),
        Field("pair", PAIR, nullable_since=0),
        *TAGGED,
    ),
    flexible_since=1,
    newest=1,
)
FULL = {
    "number": 7, "is_set": True, "id": uuid.UUID(int=5), "text": "text", "bytes": b"bytes",
    "numbers": [1, 2, 3], "texts": ["a", "b"], "pair": {"a": 1, "b": b"x"},
}  # fmt: skip
ALL_TAGS = {"tagged_text": "text", "tagged_number": 5, "tagged_pair": {"a": 1, "b": b"x"}}
NULLS = FULL | dict.fromkeys(("text", "bytes", "numbers", "texts", "pair"))


def run(
    programs: MessagePrograms, data: bytes, version: int, columns: list[Any] | None = None
) -> tuple[bool, np.ndarray]:
    content, done = np.frombuffer(data, np.uint8), np.empty(1, np.uint8)
    counts = np.zeros((2, sum(1 for _ in programs.root)), np.int64)
    result = programs.decoder(must_end=True).decode(
        np.empty(0, np.uint8),
        np.array([content.ctypes.data], np.uintp),
        np.array([len(data)], np.int32),
        np.zeros(1, np.int32),
        programs.numbers_of(np.array([version], np.int32)),
        done,
        counts,
        columns,
    )
    assert result == (0, 0)
    return bool(done[0]), counts


def buffers(programs: MessagePrograms, counts: np.ndarray) -> list[_ColumnBuffers]:
    return [
        _ColumnBuffers.empty(column, int(count), int(size))
        for column, count, size in zip(programs.root, *counts, strict=True)
    ]


def smaller(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the counts with each of them one lower."""
    for kind, column in np.argwhere(counts > 0).tolist():
        fewer = counts.copy()
        fewer[kind, column] -= 1
        yield fewer


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("message", [FULL, NULLS, FULL | ALL_TAGS])
def test_a_message_that_needs_more_room_than_it_was_given_adds_no_values(
    message: dict[str, Any], version: int
) -> None:
    """Its bytes may change between the two passes."""
    if version == 0:
        message = {name: value for name, value in message.items() if name not in ALL_TAGS}
    programs, data = compile_message(SCHEMA), encode(SCHEMA, message, version)
    is_done, counts = run(programs, data, version)
    assert is_done
    is_done, filled = run(
        programs, data, version, [one.outputs for one in buffers(programs, counts)]
    )
    assert is_done
    assert np.array_equal(filled, counts)
    refused = 0
    for fewer in smaller(counts):
        columns = [one.outputs for one in buffers(programs, fewer)]
        is_done, filled = run(programs, data, version, columns)
        # The number of elements is not a limit: each column of elements has its own.
        if is_done:
            assert np.array_equal(filled, counts)
        else:
            refused += 1
            assert not filled.any()
    assert refused >= counts[0].astype(bool).sum()


def test_a_message_is_cut_off_at_any_byte() -> None:
    programs = compile_message(SCHEMA)
    for version, message in ((0, FULL), (0, NULLS), (1, FULL | ALL_TAGS), (1, NULLS)):
        data = encode(SCHEMA, message, version)
        for size in range(1, len(data)):
            is_done, counts = run(programs, data[:size], version)
            assert not is_done
            assert not counts.any()


def nested(depth: int) -> Schema:
    """Return structures in lists in structures."""
    schema = Schema("leaf", (Field("number", "int32"),))
    for _ in range(depth):
        schema = Schema("node", (Field("children", Array(schema)),))
    return schema


@pytest.mark.parametrize(("depth", "is_decoded"), [(11, True), (12, False)])
def test_structures_in_structures_are_decoded_to_a_depth(depth: int, is_decoded: bool) -> None:
    message: dict[str, Any] = {"number": 1}
    for _ in range(depth):
        message = {"children": [message]}
    schema = nested(depth)
    assert run(compile_message(schema), encode(schema, message, 0), 0)[0] == is_decoded


def test_an_unknown_instruction_decodes_nothing() -> None:
    decoder = MessageDecoder(
        np.array([[99, 0, 0, 0, 0, 0]], np.int32),
        np.array([0, 1], np.int32),
        np.zeros(1, np.uint8),
        1,
        False,
    )
    done, counts = np.ones(1, np.uint8), np.zeros((2, 1), np.int64)
    data = np.zeros(8, np.uint8)
    numbers = np.zeros((3, 1), np.int32)
    address = np.array([data.ctypes.data], np.uintp)
    decoder.decode(data, address, numbers[0] + 8, numbers[1], numbers[2], done, counts)
    assert (done.tolist(), counts.tolist()) == ([0], [[0], [0]])
