"""Selected batches of files that are not in the page cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches import scattered_reads
from kafkascan.batches.scattered_reads import requested_parts
from tests.support.cold_files import bytes_read, evict
from tests.support.segments import T0

VALUE, COUNT = 100_000, 240


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scattered") / "00000000000000000000.log"
    rng = np.random.default_rng(7)
    values = [rng.bytes(VALUE) for _ in range(COUNT)]  # a batch each
    path.write_bytes(ks.build_batches(timestamp=[T0] * COUNT, value=values))
    return path


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ks.Source, "is_cached", lambda self, *piece: not self.has_file)
    monkeypatch.setattr(scattered_reads, "_BYTES_PER_PART", 3 * VALUE)


def share_read(path: Path, job: object) -> float:
    evict(path)
    before = bytes_read()
    assert callable(job)
    job()
    return (bytes_read() - before) / path.stat().st_size


@pytest.mark.parametrize("rows", [slice(100, 101), slice(-1, None), slice(None, None, 40)])
def test_only_selected_batches_are_read(log: Path, rows: slice) -> None:
    batches = ks.scan_batches(log).batches[rows]
    most = 2 * len(batches) / COUNT
    assert share_read(log, lambda: ks.verify_crcs(log, batches)) < most
    assert share_read(log, lambda: ks.read_records(log, batches)) < most
    assert share_read(log, lambda: list(ks.iter_records(log, batches))) < most


@pytest.mark.usefixtures("cold")
def test_parts_of_scattered_rows(log: Path) -> None:
    batches = ks.scan_batches(log).batches
    with ks.Source(log) as source:
        parts = list(requested_parts(source, batches[::10]))
        assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
        assert (parts[0].start, parts[-1].stop) == (0, COUNT // 10)
        assert {1, 2, 3} >= {part.stop - part.start for part in parts}
        assert len(parts) < 12


@pytest.mark.usefixtures("cold")
def test_adjacent_rows_are_one_part(log: Path) -> None:
    batches = ks.scan_batches(log).batches
    with ks.Source(log) as source:
        assert list(requested_parts(source, batches)) == [slice(0, COUNT)]
        assert list(requested_parts(source, batches[:0])) == [slice(0, 0)]
    with ks.Source(log, memory_map=False) as source:
        assert list(requested_parts(source, batches[::10])) == [slice(0, COUNT // 10)]
    data = ks.Source(log.read_bytes())
    assert list(requested_parts(data, batches[::10])) == [slice(0, COUNT // 10)]


@pytest.mark.usefixtures("cold")
def test_results_are_those_of_cached_files(log: Path) -> None:
    batches = ks.scan_batches(log).batches
    data = bytearray(log.read_bytes())
    data[int(batches["position"][50]) + 500] ^= 1
    damaged = log.with_name("00000000000000000001.log")
    damaged.write_bytes(data)
    order = np.random.default_rng(3).permutation(COUNT)[: COUNT // 4]
    order[7] = 50
    selected = batches[order]
    assert ks.verify_crcs(damaged, selected).tolist() == (order != 50).tolist()
    ascending = batches[10:200:9]
    tables = list(ks.iter_records(log, ascending, batch_size=1))
    assert [int(table.columns["offset"][0]) for table in tables] == list(range(10, 200, 9))


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("position", [-(1 << 62), -1, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("length", [-(1 << 31), -13, 0, (1 << 31) - 1])
def test_rows_with_wrong_places(log: Path, position: int, length: int) -> None:
    batches = ks.scan_batches(log).batches[::20].copy()
    batches["position"][3], batches["batch_length"][5] = position, length
    batches["batch_length"][-1] = length
    with ks.Source(log) as source:
        assert list(requested_parts(source, batches))[-1].stop == len(batches)
    with pytest.raises(ks.format.BatchTableError):
        ks.verify_crcs(log, batches)
