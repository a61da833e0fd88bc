"""read_committed: of a partition, of one source, and with a given view."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN

TRANSACTIONS = GOLDEN / "kafka-4.4.0" / "data" / "transactions-0"
COMMITTED = [0, 1, 2, 3, 4, 10, 12, 13, 14, 15, 16, 22, 33, 34]


def offsets(*paths: object, **options: object) -> list[int]:
    tables = [ks.read_records(path, **options) for path in paths]  # type: ignore[arg-type]
    return [offset for table in tables for offset in table["offset"].tolist()]


def test_a_partition() -> None:
    paths = sorted(TRANSACTIONS.glob("*.log"))
    assert offsets(*paths, isolation="read_committed") == COMMITTED
    assert len(offsets(*paths)) == 32
    view = ks.logs.read_committed_view(TRANSACTIONS)
    assert view.last_stable_offset == 37
    sources = [ks.Source(path.read_bytes()) for path in paths]
    assert offsets(*sources, isolation="read_committed", transactions=view) == COMMITTED
    (partition,) = ks.open_log_dir(TRANSACTIONS).partitions
    assert (
        ks.logs.read_committed_view(partition).last_offsets.tolist() == view.last_offsets.tolist()
    )


def test_a_source_counts_as_a_whole_log(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "topic-0").write()
    whole = ks.scan_batches(partition.log(0)).batches
    before_marker = partition.log(0).read_bytes()[: int(whole["position"][-1])]
    found = offsets(before_marker, isolation="read_committed")
    assert found == [*range(15)]  # up to the transaction whose marker is cut off
    assert offsets(partition.log(0), isolation="read_committed") == [*range(15), 19, 20, 21]


def test_options_that_combine_with_it(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "topic-0").write()
    path = partition.log(0)
    batches = ks.scan_batches(path).batches
    table = ks.read_records(path, batches[5:], isolation="read_committed")
    assert table["offset"].tolist() == [19, 20, 21]
    table = ks.read_records(path, batches[5:], control="include", isolation="read_committed")
    assert table["offset"].tolist() == [15, 19, 20, 21, 22]
    tables = list(ks.iter_records(path, isolation="read_committed", columns=["key"], batch_size=1))
    assert sum(map(len, tables)) == 18
    with pytest.raises(ValueError, match="isolation"):
        ks.read_records(path, isolation="committed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="isolation"):
        ks.iter_records(path, isolation="serializable")  # type: ignore[arg-type]


def test_damage_is_an_error(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "topic-0").write()
    data = bytearray(partition.log(2).read_bytes())
    data[-1] ^= 1
    partition.log(2).write_bytes(data)
    with pytest.raises(ks.ChecksumMismatchError):
        ks.read_records(partition.log(0), isolation="read_committed")
    partition.log(2).write_bytes(bytes(100_000)[:16] + b"\x09" + bytes(1000))
    with pytest.raises(ks.CorruptBatchError):
        ks.logs.read_committed_view(partition.folder)
