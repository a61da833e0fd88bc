"""State topics of many distinct entries: calls are linear in the number of records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.work import count_calls

FEW = 250
Pairs = list[tuple[bytes | None, bytes | None]]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commits(count: int) -> Pairs:
    """Return an offset of each of many groups (``OffsetCommitKey`` and ``OffsetCommitValue``)."""
    value = struct.pack(">hqi", 3, 5, 0) + text("") + struct.pack(">q", 0)
    return [
        (struct.pack(">h", 1) + text(f"g{n}") + text("t") + struct.pack(">i", 0), value)
        for n in range(count)
    ]


def transactions(count: int) -> Pairs:
    """Return an empty transaction of each of many transactional ids."""
    return [
        (struct.pack(">h", 0) + text(f"x{n}"),
         struct.pack(">hqhibiqq", 0, n, 0, 1000, 0, -1, 0, 0))
        for n in range(count)
    ]  # fmt: skip


def topics(count: int) -> Pairs:
    """Return topics (``TopicRecord``), each removed again (``RemoveTopicRecord``) in the end."""
    ids = [number.to_bytes(16, "big") for number in range(1, count + 1)]
    added = [b"\1\2\0\6t%04d" % row + one + b"\0" for row, one in enumerate(ids)]
    removed = [b"\1\x09\0" + one + b"\0" for one in ids]
    return [(None, value) for value in added + removed]


READERS: dict[str, tuple[Callable[[int], Pairs], Callable[[Path], object]]] = {
    "__consumer_offsets-0": (commits, ks.read_groups),
    "__transaction_state-0": (transactions, ks.read_transaction_state),
    "__cluster_metadata-0": (topics, ks.read_metadata),
}


@pytest.mark.parametrize("name", READERS)
def test_four_times_the_records_take_four_times_the_calls(tmp_path: Path, name: str) -> None:
    build, read = READERS[name]
    calls = []
    for count in (FEW, 4 * FEW):
        folder = tmp_path / str(count) / name
        folder.mkdir(parents=True)
        pairs = build(count)
        log = ks.build_batches(key=[key for key, _ in pairs], value=[value for _, value in pairs])
        (folder / f"{0:020}.log").write_bytes(log)
        read(folder)  # imports
        calls.append(count_calls(lambda path=folder: read(path)))  # type: ignore[misc]
    assert calls[0] > FEW
    assert calls[1] < 5 * calls[0]
