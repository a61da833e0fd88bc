"""The loop over plain batches returns what the loops for all batches return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan._core import plain_batches
from kafkascan.records import decoding
from tests.property.records.test_records import record_lists, rows
from tests.support.examples import examples
from tests.support.records import RecordV2, batch_of
from tests.support.segments import batch_v2, message_v0, message_v1

OTHERS = [
    batch_v2(b"", records_count=0),
    batch_v2(b"\x20" * 40, attributes=32),
    batch_v2(b"x" * 40, records_count=-1),
    batch_v2(b"x" * 40, records_count=6),
    batch_v2(b"x" * 40, attributes=3),
    message_v0(b"key", b"value"),
    message_v1(None, b"value"),
]
FIELDS = ("position", "batch_length", "records_count", "magic", "attributes", "base_timestamp")
edits = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(FIELDS), st.sampled_from([-1, 0, 1, 3, 10**6])),
    max_size=2,
)
damages = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=2)
logs = st.lists(st.one_of(record_lists, record_lists, st.sampled_from(OTHERS)), max_size=6)


def outcome(read: Callable[[], list[ks.RecordTable]]) -> object:
    try:
        tables = read()
    except (ValueError, ks.format.KafkaScanError) as error:
        return type(error), str(error)
    found = [
        (one.batches.tolist(), {name: c.tolist() for name, c in one.columns.items()})
        for one in tables
    ]
    return found, [rows(one) for one in tables]


def without_the_loop(read: Callable[[], list[ks.RecordTable]]) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_decode_plain", lambda *_: None)
        return outcome(read)


@given(logs, damages, edits, st.integers(1, 40), st.data())
@examples(400)
def test_plain_batches_are_decoded_like_others(
    parts: list[list[RecordV2] | bytes],
    damage: list[tuple[int, int]],
    edited: list[tuple[int, str, int]],
    batch_size: int,
    data: Any,
) -> None:
    log = bytearray(b"".join(x if isinstance(x, bytes) else batch_of(x) for x in parts))
    batches = ks.scan_batches(bytes(log)).batches.copy()
    if log:
        for at, bits in damage:
            log[at % len(log)] ^= bits
    if len(batches):
        for row, name, change in edited:
            values = batches[name][row % len(batches) :][:1]
            values[:] = (values.astype(np.int64) + change).astype(values.dtype)
    columns = data.draw(st.sampled_from([["offset", "timestamp", "key", "value", "headers"],
                                         ["offset"], ["value"], ["batch"]]))  # fmt: skip
    common: dict[str, Any] = {"columns": columns, "control": "include"}

    def whole() -> list[ks.RecordTable]:
        return [ks.read_records(bytes(log), batches, threads=1, **common)]

    def grouped() -> list[ks.RecordTable]:
        return list(ks.iter_records(bytes(log), batches, batch_size=batch_size, **common))

    assert outcome(whole) == without_the_loop(whole)
    assert outcome(grouped) == without_the_loop(grouped)


@given(st.lists(record_lists, min_size=1, max_size=4), st.integers(2, 3))
@examples(60)
def test_parts_of_threads_are_joined(parts: list[list[RecordV2]], threads: int) -> None:
    log = b"".join(batch_of(part) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_BYTES_PER_THREAD", 1)
        [one] = [ks.read_records(log, threads=threads)]
    assert rows(one) == rows(ks.read_records(log, threads=1))


def test_plain_batches_need_no_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "load_payloads", lambda *_: pytest.fail("not in one pass"))
    log = ks.build_batches({"value": [b"value"] * 10}, batch_size=1)
    assert len(ks.read_records(log)) == 10
    assert [len(one) for one in ks.iter_records(log, batch_size=5)] == [5, 5]


def test_counts_that_the_source_cannot_hold_are_refused_before_memory_is_taken() -> None:
    batches = ks.scan_batches(batch_v2(b"x" * 40)).batches
    assert plain_batches.count_plain_records(batches, 40) == 1
    for wrong in ({"records_count": 6}, {"records_count": -1}, {"magic": 1}, {"attributes": 2}):
        edited = batches.copy()
        for name, value in wrong.items():
            edited[name] = value
        assert plain_batches.count_plain_records(edited, 1000) == -1
    batches["batch_length"], batches["records_count"] = 2**31 - 1, 10**8
    assert plain_batches.count_plain_records(batches, 10**6) == -1
    assert plain_batches.count_plain_records(np.repeat(batches, 3), 2**31) == -1
