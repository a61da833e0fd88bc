"""How headers of files are read: from a map, or one by one if that is faster or reads less."""

from __future__ import annotations

import itertools
import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.collecting import collect
from kafkascan.batches.header_reading import cold_headers, header_readers
from kafkascan.batches.header_reading.cold_headers import ColdHeaders
from kafkascan.batches.header_reading.header_readers import header_reader_of
from kafkascan.batches.header_reading.known_starts import known_starts
from kafkascan.batches.walks import BatchWalk
from kafkascan.io.page_cache import MapOrReads
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from tests.support.cold_files import bytes_read, evict
from tests.support.recorded_objects import RecordedObject
from tests.support.segments import batch_v2

BATCH, COUNT = 100_000, 240


def write_log(folder: Path, *, with_index: bool) -> Path:
    path = folder / "00000000000000000000.log"
    rng = np.random.default_rng(7)
    parts = [
        batch_v2(rng.bytes(int(size)), base_offset=number)
        for number, size in enumerate(rng.integers(BATCH // 2, 3 * BATCH // 2, COUNT))
    ]
    path.write_bytes(b"".join(parts))
    if with_index:
        batches = ks.scan_batches(path).batches
        entries = ks.build_offset_index(batches, base_offset=0)
        path.with_suffix(".index").write_bytes(entries.tobytes())
    return path


def stored(log: Path) -> PrefetchingReader:
    index = log.with_suffix(".index").read_bytes()
    return PrefetchingReader(RecordedObject(log.read_bytes()), lambda: index)


def test_each_kind_of_source_has_its_reader(tmp_path: Path) -> None:
    path = write_log(tmp_path, with_index=True)
    log = path.read_bytes()

    def reader_of(data: ks.SourceLike, *, is_in_order: bool = False) -> type:
        with ks.Source(data) as source:
            return type(header_reader_of(source, source.size, 1 << 18, is_in_order=is_in_order))

    assert reader_of(log) is header_readers.MappedHeaders
    assert reader_of(path) is header_readers.FileHeaders
    assert reader_of(path, is_in_order=True) is header_readers.MappedHeaders
    assert reader_of(stored(path)) is header_readers.StoredHeaders
    assert reader_of(stored(path), is_in_order=True) is header_readers.WindowedHeaders
    small = PrefetchingReader(RecordedObject(log[:1000]))
    assert reader_of(small) is header_readers.WindowedHeaders, "a few requests fetch all of it"


def test_an_index_has_the_same_positions_in_a_folder_and_in_a_store(tmp_path: Path) -> None:
    path = write_log(tmp_path, with_index=True)
    with ks.Source(path) as file, ks.Source(stored(path)) as store:
        assert known_starts(file).tolist() == known_starts(store).tolist() != []
    with ks.Source(path.read_bytes()) as data:
        assert known_starts(data).tolist() == []


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("memory_map", [True, False])
def test_bytes_between_headers_are_not_read(
    tmp_path: Path, with_index: bool, memory_map: bool
) -> None:
    path = write_log(tmp_path, with_index=with_index)
    expected = ks.scan_batches(path).batches
    evict(path)
    before = bytes_read()
    with ks.Source(path, memory_map=memory_map) as source:
        batches = ks.scan_batches(source).batches
    assert batches.tobytes() == expected.tobytes()
    # Two pages for each header at most, and half a batch for each guess.
    assert bytes_read() - before < 0.25 * path.stat().st_size


def test_an_index_tells_the_size_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All headers are requested before the first of them is read."""
    path = write_log(tmp_path, with_index=True)
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    monkeypatch.setattr(cold_headers, "_FIRST_ROWS", COUNT // 2)
    scanned: list[int] = []
    fill = ColdHeaders.fill

    def count(self: ColdHeaders, *arguments: object) -> tuple[int, int, int]:
        result = fill(self, *arguments)  # type: ignore[arg-type]
        scanned.append(result[1])
        return result

    monkeypatch.setattr(ColdHeaders, "fill", count)
    with ks.Source(path) as source:
        assert len(collect(BatchWalk(source, 0, source.size))) == COUNT
    assert scanned == [COUNT]


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_cold_map_whose_batches_are_read_is_walked_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_map: bool
) -> None:
    """Its tables end early: the system reads the next bytes while a table is worked on."""
    path = write_log(tmp_path, with_index=False)
    expected = ks.scan_batches(path).batches
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    if memory_map:
        scanned_alone = "a header is read alone"
        monkeypatch.setattr(ColdHeaders, "fill", lambda *_: pytest.fail(scanned_alone))
    tables, room = [], np.empty(COUNT, ks.BATCH_DTYPE)
    with ks.Source(path, memory_map=memory_map) as source:
        walk = BatchWalk(source, 0, source.size, reads_content=True)
        while walk.end is None:
            tables.append(room[: walk.fill(room)].copy())
    assert np.concatenate(tables).tobytes() == expected.tobytes()
    sizes = [int(ks.batches.size_in_bytes(one).sum()) for one in tables]
    assert len(tables) > 5 if memory_map else sizes[0] == path.stat().st_size
    assert not memory_map or max(sizes) < (1 << 22) + 2 * BATCH


def test_a_cached_file_is_read_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path, with_index=True)
    path.read_bytes()
    monkeypatch.setattr(cold_headers, "open_selective", lambda source: pytest.fail("is cached"))
    assert len(ks.scan_batches(path)) == COUNT


def test_any_choice_between_a_map_and_reads_gives_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path, with_index=False)
    expected = ks.scan_batches(path).batches.tobytes()
    few = partial(MapOrReads, measured=3, kept=10, fast_ns=500)
    monkeypatch.setattr(header_readers, "MapOrReads", lambda *_, **__: few())
    original, taken = MapOrReads.note, set()
    for seed in range(20):
        # The time of a header by chance, so that choices are.
        times = random.Random(seed).choices((100, 1_000, 5_000), k=COUNT)

        def note(
            self: MapOrReads,
            count: int,
            taken_ns: int,
            *,
            has_small_pages: bool,
            times: list[int] = times,
        ) -> None:
            taken.add(self.are_read)
            original(self, count, times.pop() * count, has_small_pages=times[0] == 100)

        with monkeypatch.context() as patch:
            patch.setattr(MapOrReads, "note", note)
            assert ks.scan_batches(path).batches.tobytes() == expected
    assert taken == {False, True}


def test_headers_are_taken_in_the_faster_way() -> None:
    """A call takes `call_ns` besides the time of its headers: in a map, and by reads."""

    def ways_of(
        map_ns: int, read_ns: int, call_ns: int = 0, *, has_small_pages: bool = False
    ) -> str:
        way, found = MapOrReads(measured=8, kept=2_048, fast_ns=500), ""
        for _ in range(12):
            found += "Mr"[way.are_read] if way.left <= 128 else "mR"[way.are_read]
            left = min(way.left, 100_000)
            for count in (left // 2, left - left // 2):
                ns = call_ns // 2 + count * (read_ns if way.are_read else map_ns)
                way.note(count, ns, has_small_pages=has_small_pages and not way.are_read)
        return found

    # Capital letters: the map is measured, and reads are kept.
    assert ways_of(100, 700) == "Mmmmmmmmmmmm", "no read is as fast: none is tried"
    assert ways_of(5_000, 700, has_small_pages=True) == "MrRMRMRMRMRM", "one call shows it"
    assert ways_of(5_000, 700) == "MMrRMMRMMRMM", "the caches of the CPU may have been cold"
    assert ways_of(1_300, 2_000) == "MMrrmrrmrrmr"
    assert ways_of(2_000, 1_200, call_ns=100_000) == "MMMMMrrrrRMM"


@pytest.mark.parametrize(("faults", "are_read"), [(1, False), (3, True)])
def test_headers_are_read_where_each_takes_a_page_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int, are_read: bool
) -> None:
    path = write_log(tmp_path, with_index=False)
    counts = itertools.count(0, faults)
    monkeypatch.setattr(header_readers, "page_faults", lambda: next(counts))
    ways: list[bool] = []
    original = MapOrReads.note

    def note(self: MapOrReads, *taken: int, has_small_pages: bool) -> None:
        original(self, *taken, has_small_pages=has_small_pages)
        ways.append(self.are_read)

    monkeypatch.setattr(MapOrReads, "note", note)
    ks.scan_batches(path)
    assert ways[0] is are_read
    ways.clear()
    path.write_bytes(b"".join(batch_v2(bytes(99), base_offset=i) for i in range(3_000)))
    ks.scan_batches(path)
    assert ways[0] is False, "the faults are not those of headers: many are in a page"


def test_a_file_that_cannot_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example without /proc."""
    path = write_log(tmp_path, with_index=True)
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    monkeypatch.setattr(cold_headers, "open_selective", lambda source: None)
    assert len(ks.scan_batches(path)) == COUNT


def test_a_file_that_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are those of the file that was opened."""
    path = write_log(tmp_path, with_index=False)
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    with ks.Source(path) as source:
        path.unlink()
        path.write_bytes(bytes(100))
        assert len(ks.scan_batches(source)) == COUNT


def test_a_source_can_be_closed_during_a_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path, with_index=False)
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    descriptors = len(os.listdir("/proc/self/fd"))
    source = ks.Source(path)
    walk = BatchWalk(source, 0, source.size)
    rows = np.empty(10, ks.BATCH_DTYPE)
    assert walk.fill(rows) == 10
    source.close()
    with pytest.raises(ValueError, match="closed"):
        walk.fill(rows)
    del walk
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_small_batches_are_read_with_everything_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "00000000000000000000.log"
    parts = [batch_v2(bytes(1000), base_offset=number) for number in range(5000)]
    path.write_bytes(b"".join(parts))
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: False)
    scanned: list[int] = []
    fill = ColdHeaders.fill

    def count(self: ColdHeaders, *arguments: object) -> object:
        scanned.append(1)
        return fill(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ColdHeaders, "fill", count)
    with ks.Source(path) as source:
        assert len(collect(BatchWalk(source, 0, source.size))) == 5000
    assert len(scanned) == 1, "only the first batches, to learn their size"


@pytest.mark.parametrize("is_cached", [True, False])
def test_small_batches_of_a_cold_file_are_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    """Several walks over one map at a time defeat the read-ahead of the system."""
    path = tmp_path / "00000000000000000000.log"
    parts = [batch_v2(bytes(1000), base_offset=number) for number in range(5000)]
    path.write_bytes(b"".join(parts))
    monkeypatch.setattr(ks.Source, "is_cached", lambda *piece: is_cached)
    scan_into = header_readers._core.scan_into
    in_chains = []

    def note(*arguments: object, **options: object) -> object:
        in_chains.append(options.get("in_chains"))
        return scan_into(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(header_readers._core, "scan_into", note)
    assert len(ks.scan_batches(path)) == 5000
    assert set(in_chains) == {is_cached}


class TestLogFile:
    """The compiled reads, with arguments that a walk does not have."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> LogFile:
        path = tmp_path / "log"
        path.write_bytes(b"".join(batch_v2(bytes(100), base_offset=i) for i in range(100)))
        self.size = path.stat().st_size
        self.descriptor = os.open(path, os.O_RDONLY)
        return LogFile(self.descriptor, 0, self.size)

    def test_positions_outside_of_the_log(self, file: LogFile) -> None:
        rows = np.empty(10, ks.BATCH_DTYPE)
        for position, stop in ((-1, 10), (10, 5), (0, self.size + 1)):
            with pytest.raises(ValueError, match="exceed"):
                file.scan_into(position, stop, rows)
        with pytest.raises(ValueError, match="exceed"):
            file.follow_chains(np.array([-1]), np.array([5]), 10)
        with pytest.raises(ValueError, match="exceed"):
            file.follow_chains(np.array([0]), np.array([self.size + 1]), 10)
        with pytest.raises(ValueError, match="as many"):
            file.follow_chains(np.array([0, 1]), np.array([5]), 10)
        file.request_headers(np.array([-(2**63), -1, self.size, 2**63 - 1]))

    def test_chains_end_where_there_is_no_batch(self, file: LogFile) -> None:
        positions = np.array([0, 5, 161 * 50, self.size - 30])
        stops = np.array([161 * 10, 161 * 50, self.size, self.size])
        assert file.follow_chains(positions, stops, 1000) == 10 + 1 + 50 + 1
        assert (positions >= stops).all()
        assert file.follow_chains(positions, stops, 1000) == 0

    def test_chains_pause(self, file: LogFile) -> None:
        positions, stops = np.array([0]), np.array([self.size])
        assert file.follow_chains(positions, stops, 7) == 7
        assert positions.tolist() == [161 * 7]

    def test_guesses(self, file: LogFile) -> None:
        buffer = np.empty(200, np.uint8)
        assert file.guess(1, self.size, 0, buffer) == 161
        assert file.guess(1, 161, 0, buffer) == -1
        assert file.guess(161 * 99 + 1, self.size, 0, buffer) == -1
        assert file.guess(1, self.size, 60, buffer) == 161 * 61
        with pytest.raises(ValueError, match="too small"):
            file.guess(0, 10, 0, np.empty(61, np.uint8))

    def test_a_file_that_shrank(self, file: LogFile) -> None:
        os.truncate(f"/proc/self/fd/{self.descriptor}", 1000)
        rows = np.empty(100, ks.BATCH_DTYPE)
        status, count, position = file.scan_into(0, self.size, rows)
        assert (status, count, position) == (40, 0, 161 * 6)
        assert file.offset_of(5000) is None
