"""Lookups with indexes, without indexes, and with wrong indexes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support.logs import ABORT, TRANSACTIONAL, WrittenLog, marker
from tests.support.paths import GOLDEN
from tests.support.segments import T0, batch_v2


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments with dense indexes."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = WrittenLog(random.Random(5), base_offset=100).write(150, list(range(9)))
    third = len(log.batches) // 3
    for start, stop in ((0, third), (third, 2 * third), (2 * third, None)):
        base_offset, data = log.segment(start, stop)
        path = folder / f"{base_offset:020}.log"
        path.write_bytes(data)
        place = {"base_offset": base_offset, "interval_bytes": 200}
        batches = ks.scan_batches(path).batches
        ks.write_index(path.with_suffix(".index"), ks.build_offset_index(batches, **place))
        ks.write_index(path.with_suffix(".timeindex"), ks.build_time_index(batches, **place))
    return folder


def all_records(folder: Path) -> list[tuple[int, int]]:
    found = []
    for path in sorted(folder.glob("*.log")):
        table = ks.read_records(path, columns=["offset", "timestamp"], control="include")
        found += list(zip(table["offset"].tolist(), table["timestamp"].tolist(), strict=True))
    return found


@pytest.mark.parametrize("trust_index", [False, True])
def test_every_offset(partition: Path, trust_index: bool) -> None:
    for offset, _ in all_records(partition):
        found = ks.lookup_offset(partition, offset, trust_index=trust_index)
        assert found is not None
        assert found.base_offset <= offset <= found.last_offset
        scan = ks.scan_batches(found.path, start=found.position)
        assert int(scan.batches["base_offset"][0]) == found.base_offset
        assert int(ks.batches.size_in_bytes(scan.batches)[0]) == found.size_in_bytes
    end = all_records(partition)[-1][0] + 1
    assert ks.lookup_offset(partition, end, trust_index=trust_index) is None
    first = ks.lookup_offset(partition, 0, trust_index=trust_index)
    assert first is not None
    assert first.base_offset == 100


@pytest.mark.parametrize("trust_index", [False, True])
def test_every_timestamp(partition: Path, trust_index: bool) -> None:
    records = all_records(partition)
    for _, time in records:
        found = ks.lookup_timestamp(partition, time, trust_index=trust_index)
        expected = next(one for one in records if one[1] >= time)
        assert found is not None
        assert (found.offset, found.timestamp) == expected
        assert found.partition_leader_epoch is not None
    assert ks.lookup_timestamp(partition, T0 + 10**9, trust_index=trust_index) is None
    early = ks.lookup_timestamp(partition, 0, trust_index=trust_index)
    assert early is not None
    assert early.offset == 100


def test_a_start_offset(partition: Path) -> None:
    segment = min(partition.glob("*.log"))
    start = int(ks.scan_batches(segment).batches["base_offset"][5])
    found = ks.lookup_timestamp(segment, 0, log_start_offset=start)
    assert found is not None
    assert found.offset == start


def test_many_lookups_in_one_table(partition: Path) -> None:
    segment = min(partition.glob("*.log"))
    batches = ks.scan_batches(segment).batches
    for offset in range(100, int(ks.batches.last_offset(batches)[-1])):
        assert ks.lookup_offset(segment, offset, batches=batches) == ks.lookup_offset(
            segment, offset
        )
    for time in range(T0 + 100, T0 + 160):
        assert ks.lookup_timestamp(segment, time, batches=batches) == ks.lookup_timestamp(
            segment, time
        )


def test_wrong_indexes(partition: Path) -> None:
    segment = min(partition.glob("*.log"))
    expected = [ks.lookup_offset(segment, offset) for offset in range(100, 130)]
    entries = np.zeros(2, ks.OFFSET_INDEX_ENTRY)
    entries["relative_offset"] = 1, 2
    entries["position"] = 7, 10**6
    ks.write_index(segment.with_suffix(".index"), entries)
    assert [ks.lookup_offset(segment, offset) for offset in range(100, 130)] == expected
    with pytest.raises(ks.CorruptIndexError, match="points to position 7 "):
        ks.lookup_offset(segment, 101, trust_index=True)
    with pytest.raises(ks.CorruptIndexError, match="TOO_LARGE"):
        ks.lookup_offset(segment, 105, trust_index=True)
    segment.with_suffix(".index").unlink()
    assert ks.lookup_offset(segment, 105, trust_index=True) == expected[5]


def test_a_wrong_time_index_misleads_only_lookups_that_trust_it(partition: Path) -> None:
    """What a broker answers is in `tests/oracle/test_wrong_time_indexes.py`."""
    records = all_records(partition)
    first, *_ = segments = sorted(partition.glob("*.log"))
    entries = ks.read_index(first.with_suffix(".timeindex")).copy()
    latest = int(entries["timestamp"][-1])
    truth = next(one for one in records if one[1] >= latest)
    # The last entry says that the first segment ends before.
    entries["timestamp"] = np.minimum(entries["timestamp"], latest - 1)
    ks.write_index(first.with_suffix(".timeindex"), entries)
    found = ks.lookup_timestamp(partition, latest)
    assert found is not None
    assert (found.offset, found.timestamp) == truth
    trusted = ks.lookup_timestamp(partition, latest, trust_index=True)
    assert trusted is not None
    assert trusted.path == str(segments[1])
    # Its first entry leads behind the records that reach an earlier time.
    entries = entries[:1].copy()
    entries["timestamp"], entries["relative_offset"] = records[0][1], records[20][0] - 100
    ks.write_index(first.with_suffix(".timeindex"), entries)
    wanted = records[0][1]
    assert ks.lookup_timestamp(partition, wanted).offset == 100  # type: ignore[union-attr]
    late = ks.lookup_timestamp(first, wanted, trust_index=True)
    assert late is not None
    assert 100 < late.offset <= records[20][0]


def test_bytes_have_no_index() -> None:
    log = batch_v2(base_offset=3) + batch_v2(base_offset=4)
    found = ks.lookup_offset(log, 4, trust_index=True)
    assert found is not None
    assert found.position == len(log) // 2


def test_check_index_finds_nothing_in_golden_files() -> None:
    checked = 0
    for log in GOLDEN.glob("*/data/*/*.log"):
        batches = ks.scan_batches(log, on_corrupt="stop").batches
        for kind in ("index", "timeindex", "txnindex"):
            path = log.with_suffix(f".{kind}")
            if path.exists():
                checked += 1
                found = ks.check_index(path, batches)
                assert [one for one in found if one.severity is not ks.Severity.NOTE] == [], path
    assert checked > 100
    padded = GOLDEN / "kafka-4.4.0-killed/data/being-written-0" / f"{0:020}.index"
    batches = ks.scan_batches(padded.with_suffix(".log"), on_corrupt="stop").batches
    assert [one.symbol for one in ks.check_index(padded, batches)] == ["PADDED"]


def with_field(entries: np.ndarray, row: int, **values: int) -> np.ndarray:
    changed = entries.copy()
    for name, value in values.items():
        changed[name][row] = value
    return changed


def test_findings_of_check_index(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    batches = ks.scan_batches(log).batches
    offsets = ks.read_index(log.with_suffix(".index"))
    times = ks.read_index(log.with_suffix(".timeindex"))

    def symbols(entries: np.ndarray) -> list[str]:
        found = ks.check_index(entries, batches, base_offset=100)
        return sorted({one.symbol for one in found})

    assert symbols(offsets) == symbols(times) == []
    position = int(offsets["position"][3])
    assert symbols(with_field(offsets, 3, position=position + 1)) == ["WRONG_POSITION"]
    far = with_field(offsets, len(offsets) - 1, position=2**30)
    assert symbols(far) == ["TOO_LARGE"]
    assert symbols(offsets[[0, 2, 1]]) == ["OUT_OF_ORDER"]
    early = int(offsets["relative_offset"][2]) + 1
    assert "WRONG_POSITION" in symbols(with_field(offsets, 3, relative_offset=early))
    last = len(offsets) - 1
    assert symbols(with_field(offsets, last, relative_offset=10**6)) == ["OFFSET_NOT_IN_LOG"]
    later = int(times["timestamp"][1]) + 1
    assert symbols(with_field(times, 1, timestamp=later)) == ["TIMESTAMP_MISMATCH"]
    end = len(times) - 1
    assert symbols(with_field(times, end, relative_offset=10**6)) == ["OFFSET_NOT_IN_LOG"]
    assert symbols(times[:-1]) == ["INCOMPLETE"]
    assert symbols(times[[0, 2, 1]]) == ["INCOMPLETE", "OUT_OF_ORDER"]
    with pytest.raises(TypeError):
        ks.check_index(np.zeros(3, np.int64), batches)


def test_findings_in_a_transaction_index() -> None:
    log = GOLDEN / "kafka-4.4.0/data/transactions-0" / f"{5:020}.log"
    batches = ks.scan_batches(log).batches
    entries = ks.read_index(log.with_suffix(".txnindex"))
    assert ks.check_index(entries, batches) == []
    found = ks.check_index(entries[::-1], batches)
    assert {one.symbol for one in found} == {"OUT_OF_ORDER"}
    found = ks.check_index(with_field(entries, 0, last_offset=8), batches)
    assert [one.symbol for one in found] == ["OFFSET_NOT_IN_LOG"]
    found = ks.check_index(with_field(entries, 0, producer_id=99), batches)
    assert [one.symbol for one in found] == ["PRODUCER_MISMATCH"]
    assert str(found[0]).startswith("error: position 0: the marker with offset 9 does not")


def test_transaction_index_entries_of_producer_0_and_of_no_producer() -> None:
    """Control batches without a producer, such as those of the Raft layer, end no transaction."""
    entries = np.zeros(2, ks.format.TRANSACTION_INDEX_ENTRY)
    entries["first_offset"], entries["last_offset"] = [0, 0], [1, 2]
    log = (
        batch_v2(producer_id=0, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
        + marker(ABORT, base_offset=1, producer_id=0)
        + marker(ABORT, base_offset=2, producer_id=-1)
    )
    batches = ks.scan_batches(log).batches
    assert ks.check_index(entries[:1], batches) == []
    (found,) = ks.check_index(entries, batches)
    assert (found.symbol, found.row) == ("OFFSET_NOT_IN_LOG", 1)


def test_files_of_odd_size(tmp_path: Path, partition: Path) -> None:
    log = min(partition.glob("*.log"))
    batches = ks.scan_batches(log).batches
    path = log.with_suffix(".index")
    path.write_bytes(path.read_bytes() + b"odd")
    (found,) = ks.check_index(path, batches)
    assert (found.symbol, found.severity) == ("ODD_INDEX_SIZE", ks.Severity.ERROR)
