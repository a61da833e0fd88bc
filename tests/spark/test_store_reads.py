"""Bytes that are fetched from a store: each once, and only those that a read needs."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state.indexes import build_offset_index
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import DATA, OLD_DATA, multiset, plain_batch, rows, segment_path
from tests.spark.test_stream import Follower

fsspec = pytest.importorskip("fsspec")

URL = "memory://bucket/data"
LOG = f"{URL}/topic-0/{0:020d}.log"
MB = 1 << 20


@dataclass
class Reads:
    """Ranges that were fetched from logs in the store."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def clear(self) -> None:
        self.ranges.clear()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    from fsspec.implementations.memory import MemoryFileSystem

    found = Reads()
    cat_file = MemoryFileSystem.cat_file

    def counted(self: Any, path: str, start: Any = None, end: Any = None, **keywords: Any) -> bytes:
        data: bytes = cat_file(self, path, start=start, end=end, **keywords)
        if path.endswith(".log"):
            found.ranges.append((start or 0, (start or 0) + len(data)))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    yield found
    fsspec.filesystem("memory").store.clear()


def put(log: bytes, *, index: bool = False, url: str = LOG) -> int:
    """Store a log, with its index if asked for, and return its size."""
    fs = fsspec.filesystem("memory")
    fs.pipe_file(url, log)
    if index:
        entries = build_offset_index(ks.scan_batches(log).batches, base_offset=0)
        fs.pipe_file(url.replace(".log", ".index"), entries.tobytes())
    return len(log)


@functools.lru_cache(maxsize=4)
def log_of(count: int, size: int) -> bytes:
    """A log of batches with one record of a size each."""
    return b"".join(plain_batch(n, 1, size) for n in range(count))


LARGE, SMALL = (48, MB), (3000, 16_000)
"""Number and size of batches."""


@pytest.mark.parametrize("batches", [LARGE, SMALL, (5, 7 * MB), (3, 14 * MB)])
@pytest.mark.parametrize("view", ["records", "segments", "batches"])
def test_every_byte_is_fetched_once(reads: Reads, batches: tuple[int, int], view: str) -> None:
    """Headers, checksums and records of a table come from the same bytes."""
    size = put(log_of(*batches))
    found = rows(path=URL, view=view, verify="true", prefetch="0")
    assert sum(row.get("batches", 1) for row in found) == batches[0]
    assert reads.size == size
    assert len(reads.ranges) <= 3 + size // (6 * MB), "large requests"


def test_headers_of_large_batches(reads: Reads) -> None:
    """Only the headers that an index names are fetched; small batches are fetched completely."""
    size = put(log_of(*LARGE), index=True)
    for view in ("batches", "segments"):
        reads.clear()
        rows(path=URL, view=view, prefetch="0")
        assert reads.size < size // 40
        assert len(reads.ranges) <= LARGE[0] + 2
    size = put(log_of(*SMALL))
    reads.clear()
    rows(path=URL, view="batches", prefetch="0")
    assert reads.size < 1.01 * size
    assert len(reads.ranges) <= 32


@pytest.mark.parametrize(("batches", "most"), [(LARGE, 0.1), (SMALL, 0.03)])
def test_the_last_records(reads: Reads, batches: tuple[int, int], most: float) -> None:
    size = put(log_of(*batches), index=True)
    first = batches[0] - (2 if batches is LARGE else 64)
    found = rows(path=URL, startingOffsets=json.dumps({"topic": {"0": first}}), prefetch="0")
    assert [row["offset"] for row in found] == list(range(first, batches[0]))
    assert reads.size < most * size


@pytest.mark.parametrize("batches", [LARGE, SMALL, (9000, 5000), (40, 400_000)])
def test_a_stream(reads: Reads, batches: tuple[int, int]) -> None:
    """The driver fetches the end of the last object of a log, and tasks fetch batches."""
    size = put(log_of(*batches), index=True)
    stream = Follower(URL, prefetch="0")  # type: ignore[arg-type]
    assert len(stream.read()) == batches[0]
    assert reads.size < 1.1 * size
    reads.clear()
    first = batches[0]
    put(plain_batch(first), url=LOG.replace(f"{0:020d}", f"{first:020d}"))
    assert [offset for _, _, offset in stream.read()] == [first, first + 1]
    assert reads.size < 0.05 * size, "what was read is not fetched again"


def followed(**options: str) -> list[int]:
    """The offsets of a stream, trigger by trigger."""
    stream = Follower(URL, prefetch="0", **options)  # type: ignore[arg-type]
    found = []
    while part := stream.read():
        found += [offset for _, _, offset in part]
    return found


@pytest.mark.parametrize(
    ("batches", "limit", "most"),
    [
        (SMALL, {"maxBytesPerTrigger": "12m"}, 1.1),
        (SMALL, {"maxBytesPerTrigger": "3m"}, 1.6),
        (SMALL, {"maxOffsetsPerTrigger": "700"}, 1.3),
        (LARGE, {"maxBytesPerTrigger": "12m"}, 1.2),
        (LARGE, {"maxOffsetsPerTrigger": "10"}, 1.3),
    ],
)
def test_a_stream_with_limits(
    reads: Reads, batches: tuple[int, int], limit: dict[str, str], most: float
) -> None:
    """Each trigger fetches its own part; the driver finds limits by the index."""
    size = put(log_of(*batches), index=True)
    assert followed(**limit) == list(range(batches[0]))
    assert reads.size < most * size


@pytest.mark.parametrize("damage", ["sparse", "shifted", "later offsets"])
def test_limits_by_an_index_that_is_wrong(reads: Reads, damage: str) -> None:
    """Limits may differ, and records may not."""
    log = log_of(400, 3000)
    put(log, index=True)
    path = LOG.replace(".log", ".index")
    entries = np.frombuffer(fsspec.filesystem("memory").cat_file(path), OFFSET_INDEX_ENTRY).copy()
    if damage == "sparse":
        entries = entries[::40]
    elif damage == "shifted":
        entries["position"] += 7
    else:
        entries["relative_offset"] += 50
    fsspec.filesystem("memory").pipe_file(path, entries.tobytes())
    for limit in ({"maxBytesPerTrigger": "100k"}, {"maxOffsetsPerTrigger": "37"}):
        assert followed(**limit) == list(range(400))


def test_limits_without_an_index_in_a_compacted_log(reads: Reads) -> None:
    """The batch after a limit begins later than the limit."""
    offsets = [*range(0, 3000, 7)]
    put(b"".join(plain_batch(offset, 1, 3000) for offset in offsets))
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/bucket/data/cleaner-offset-checkpoint", b"0\n1\ntopic 0 3000\n")
    assert followed(maxBytesPerTrigger="100k") == offsets


def test_the_end_of_an_object_in_a_stream(reads: Reads) -> None:
    """A torn tail waits, and a last batch with a wrong checksum, as in local files."""
    log = log_of(200, 16_000)
    last = plain_batch(200, 1, 16_000)
    for end in (b"", last[:-1], last[:-1] + b"x", bytes(500)):
        for index in (False, True):
            put(log, index=index)
            fsspec.filesystem("memory").pipe_file(LOG, log + end)
            stream = Follower(URL, prefetch="0")  # type: ignore[arg-type]
            assert [offset for _, _, offset in stream.read()] == list(range(200))
        fsspec.filesystem("memory").store.clear()
    put(log)
    stream = Follower(URL, prefetch="0")  # type: ignore[arg-type]
    assert len(stream.read()) == 200
    put(log + last)
    assert [offset for _, _, offset in stream.read()] == [200], "the object was replaced"


def test_damage_of_an_object_in_a_stream(reads: Reads) -> None:
    """The driver does not walk over it; the tasks of the stream do."""
    log = bytearray(log_of(300, 16_000))
    log[int(ks.scan_batches(log).batches["position"][150]) + 16] ^= 0x70  # the magic
    for index in (False, True):
        put(bytes(log), index=False)
        if index:
            whole = ks.scan_batches(log_of(300, 16_000)).batches
            entries = build_offset_index(whole, base_offset=0).tobytes()
            fsspec.filesystem("memory").pipe_file(LOG.replace(".log", ".index"), entries)
        with pytest.raises(ks.KafkaScanError):
            Follower(URL, prefetch="0").read()  # type: ignore[arg-type]
        waiting = Follower(URL, prefetch="0", mode="PERMISSIVE")  # type: ignore[arg-type]
        sound = ks.scan_batches(bytes(log), on_corrupt="stop").batches
        assert len(waiting.read()) == len(sound) == 150


@pytest.mark.parametrize("last", [70, 9000])
def test_a_record_that_contains_batches_up_to_the_end(reads: Reads, last: int) -> None:
    """An index that names one of them misleads the driver; the task notices it."""
    from tests.support.records import RecordV2, batch_of

    inner = b"".join(plain_batch(last + n, 1, 16_000) for n in range(70))
    record = RecordV2(b"k", bytes(2 * MB), headers=[(b"h", inner)])
    log = log_of(70, 16_000) + batch_of([record], base_offset=70)
    assert log.endswith(inner)
    put(log)
    entry = last.to_bytes(4, "big") + (len(log) - len(inner)).to_bytes(4, "big")
    fsspec.filesystem("memory").pipe_file(LOG.replace(".log", ".index"), entry)
    stream = Follower(URL, prefetch="0")  # type: ignore[arg-type]
    with pytest.raises(ks.format.SourceReadError, match="the log ends at offset 71, but was pl"):
        stream.read()
    lenient = Follower(URL, prefetch="0", failOnDataLoss="false")  # type: ignore[arg-type]
    assert len(lenient.read()) == 71


def test_parts_of_an_object(reads: Reads, tmp_path: Path) -> None:
    """An object with an index is split like a file; each part fetches its own bytes."""
    log = log_of(*SMALL)
    size = put(log, index=True)
    given = {"maxPartitionBytes": "6m", "columns": "offset,value"}
    options = Options.parse({"path": URL, "prefetch": "0"} | given)
    planned = plan_read(options)
    assert len(planned) == 8
    found = []
    for task in planned:
        found += [row for batch in scan_task(task, options) for row in batch.to_pylist()]
    segment_path(tmp_path, "topic").write_bytes(log)
    assert multiset(found) == multiset(rows(path=str(tmp_path), **given))
    assert reads.size < 1.05 * size, "each byte once, except at the edges of parts of 6 MiB"


@pytest.mark.parametrize("data", [DATA, OLD_DATA], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("size", [700, 3000])
def test_logs_of_brokers(reads: Reads, data: Path, size: int) -> None:
    """With the indexes that brokers wrote: the rows of local files, wherever objects are cut."""
    fsspec.filesystem("memory").put(str(data), "/bucket/golden", recursive=True)
    given = {"path": "memory://bucket/golden", "prefetch": "0"}
    cut = given | {"maxPartitionBytes": size}
    assert len(plan_read(Options.parse(cut))) > len(plan_read(Options.parse(given)))
    expected = multiset(rows(path=str(data)))
    assert multiset(rows(**given)) == multiset(rows(**cut)) == expected
    some = '{"small-segments":{"0":100}}'
    late = {"startingOffsets": some} if data is DATA else {"where": "base_offset >= 3"}
    assert multiset(rows(**cut, **late)) == multiset(rows(path=str(data), **late))


def test_objects_that_are_not_split(reads: Reads) -> None:
    put(log_of(100, 1000))
    given: dict[str, Any] = {"path": URL, "maxPartitionBytes": 2000}
    assert len(plan_read(Options.parse(given))) == 1, "without an index"
    put(log_of(100, 1000), index=True)
    assert len(plan_read(Options.parse(given))) > 10
    lenient = given | {"mode": "PERMISSIVE"}
    assert len(plan_read(Options.parse(lenient))) == 1, "damage must not change later parts"


@pytest.mark.parametrize("damage", ["garbage", "shifted", "short", "unsorted", "zero tail", "gone"])
@pytest.mark.parametrize("part", ["500", "3000", "20000"])
def test_an_index_that_is_wrong(reads: Reads, damage: str, part: str) -> None:
    """Its entries are hints: the rows stay the same."""
    log = log_of(200, 300)
    put(log, index=True)
    fs = fsspec.filesystem("memory")
    path = LOG.replace(".log", ".index")
    index = fs.cat_file(path)
    given = {"path": URL, "maxPartitionBytes": part, "prefetch": "0"}
    options = Options.parse(given)
    planned = plan_read(options)
    changed = {
        "garbage": bytes(range(256)) * (len(index) // 256 + 1),
        "shifted": b"".join(
            index[at : at + 4]
            + (int.from_bytes(index[at + 4 : at + 8], "big") + 1).to_bytes(4, "big")
            for at in range(0, len(index), 8)
        ),
        "short": index[: len(index) // 16 * 8 + 3],
        "unsorted": index[8:16] + index[:8] + index[16:],
        "zero tail": index + bytes(800),
        "gone": b"",
    }[damage]
    fs.pipe_file(path, changed)
    if damage == "gone":
        fs.rm_file(path)
    found = [
        row["offset"]
        for task in planned
        for batch in scan_task(task, options)
        for row in batch.to_pylist()
    ]
    assert sorted(found) == list(range(200))
    late = rows(path=URL, startingOffsets='{"topic":{"0":150}}', prefetch="0")
    assert [row["offset"] for row in late] == list(range(150, 200))


def test_an_index_that_names_a_batch_inside_of_a_record(reads: Reads) -> None:
    """A batch in the value of a record is valid by itself; the walk shows that it is not one."""
    inner = plain_batch(3, 1, 100)
    log = plain_batch(0) + plain_batch(2, 1, 10)
    outer_at = len(log)
    from tests.support.records import RecordV2, batch_of

    log += batch_of([RecordV2(b"k", inner + bytes(2000))], base_offset=3) + plain_batch(4)
    fs = fsspec.filesystem("memory")
    fs.pipe_file(LOG, log)
    inner_at = log.index(inner, outer_at)
    entry = (3).to_bytes(4, "big") + inner_at.to_bytes(4, "big")
    fs.pipe_file(LOG.replace(".log", ".index"), entry)
    given = {"path": URL, "maxPartitionBytes": str(inner_at + 50)}
    options = Options.parse(given | {"prefetch": "0"})
    first, *others = plan_read(options)
    assert others
    with pytest.raises(ks.CorruptBatchError, match="INDEX_MISMATCH"):
        list(scan_task(first, options))


def test_an_object_that_shrank(reads: Reads) -> None:
    log = log_of(100, 1000)
    put(log)
    for view in ("records", "batches", "segments"):
        options = Options.parse({"path": URL, "view": view, "mode": "FAILFAST", "prefetch": "0"})
        (task,) = plan_read(options)
        put(log[: len(log) // 2])
        with pytest.raises(ks.format.SourceReadError, match="was truncated"):
            list(scan_task(task, options))
        put(log)
