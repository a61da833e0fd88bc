"""Compiled lines of text are those of a few lines of Python, wherever pauses are."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, strategies as st

from kafkascan._core import text_lines as core
from tests.support.records import varint

_NAMES = (b"false", b"true", b"")
_PIECE = 512
# Bytes that begin, continue and break sequences.
_BYTES = st.sampled_from(
    [b"a", b"\x7f", b"\x80", b"\x9f", b"\xa0", b"\xbf", b"\xc1", b"\xc2", b"\xe0", b"\xed", b"\xf0",
     b"\xf4", b"\xf5", b"\xff", "ü".encode(), "€".encode(), "𝄞".encode(), b"x" * 31, b"y" * 64]
)  # fmt: skip
_TEXTS = st.lists(_BYTES, max_size=40).map(b"".join)
_LONG_TEXTS = st.builds(lambda text, times: text * times, _TEXTS, st.sampled_from([1, 1, 7, 200]))
_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
_ROW = st.tuples(
    _NUMBERS,
    st.integers(-1, 3),
    st.none() | _LONG_TEXTS,
    st.none() | _LONG_TEXTS,
    st.none() | st.binary(min_size=8, max_size=8),
    st.lists(_LONG_TEXTS, max_size=4),
    st.integers(0, 2),
)


def java_text(data: bytes) -> str:
    """Decode as Java does, which takes an encoded surrogate for one malformed sequence."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", data).decode("utf-8", "replace")


def column(items: list[bytes | None]) -> tuple[object, ...]:
    """Return addresses, sizes, and what keeps the bytes."""
    arrays = [np.frombuffer(one or b"\0", np.uint8).copy() for one in items]
    addresses = np.array([one.__array_interface__["data"][0] for one in arrays], np.uintp)
    sizes = np.array([-1 if one is None else len(one) for one in items], np.int32)
    return addresses, sizes, arrays


def _header(key: bytes) -> bytes:
    """Return an encoded header without a value."""
    return varint(len(key)) + key + varint(-1)


def expected_line(row: tuple) -> str:
    number, name, text, raw, big, texts, _ = row
    line = f"n: {number}"
    line += f" is: {_NAMES[name].decode() if 0 <= name < len(_NAMES) else ''}"
    line += "" if text is None else f" text: {java_text(text)}"
    line += "" if raw is None else f" hex: {raw.hex()}"
    line += "" if big is None else f" big: {int.from_bytes(big, 'big', signed=True)}"
    return f"{line} [{','.join(map(java_text, texts))}]\n"


@given(rows=st.lists(_ROW, max_size=12), start=st.integers(0, _PIECE))
def test_lines(rows: list[tuple], start: int) -> None:
    number, name, text, raw, big, texts, heads = (
        list(one) for one in (zip(*rows, strict=True) if rows else [[]] * 7)
    )
    # Headers with null values, behind each other; the memory of each reaches to the end.
    places, sizes, kept = column([b"".join(map(_header, one)) for one in texts])
    counts = np.array([len(one) for one in texts], np.int32)
    parts = [
        (core.NUMBER, b"n: ", np.array(number, np.int64)),
        (core.NAME, b" is: ", np.array(name, np.int64), _NAMES),
        (core.TEXT, b" text: ", *column(text)),
        (core.HEX, b" hex: ", *column(raw)),
        (core.BIG_ENDIAN, b" big: ", *column(big)),
        (core.HEADER_KEYS, b" [", places, counts, sizes.astype(np.int64), kept),
        (core.NOTHING, b"]"),
    ]
    # Each row belongs to a head, behind some heads without rows.
    first = [0]
    for at, before in enumerate(heads):
        first += [at] * before + [at + 1]
    count = len(first) - 1
    head = core.LineForm([(core.NUMBER, b"head ", np.arange(count))])
    writer = core.LineWriter(
        (head,), np.zeros(count, np.uint8), (core.LineForm(parts),), np.zeros(len(rows), np.uint8),
        np.array(first, np.int64), np.empty(0, np.uint8),
    )  # fmt: skip
    out, found = np.empty(_PIECE, np.uint8), b""
    status = 1
    while status == 1:
        before = writer.end
        status, _ = writer.fill(out, start)
        assert start <= writer.end <= _PIECE
        assert status == 0 or writer.end > start or start > 0 or before == 0
        found += out[start : writer.end].tobytes()
        start = 0
    expected = ""
    for at in range(count):
        expected += f"head {at}\n"
        expected += "".join(expected_line(row) for row in rows[first[at] : first[at + 1]])
    assert found.decode() == expected


@given(_LONG_TEXTS)
def test_java_text(data: bytes) -> None:
    assert core.java_text(data).decode() == java_text(data)
