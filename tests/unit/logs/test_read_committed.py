"""read_committed: of a partition, of one source, and with a given view."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state.producer_state import COMPLETED_TRANSACTION
from tests.spark.logs import data
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.transactional_logs import TransactionalLog

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


def test_what_is_appended_later_is_not_visible(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "topic-0").write()
    whole = ks.scan_batches(partition.log(0))
    before_marker = partition.log(0).read_bytes()[: int(whole.batches["position"][3])]
    view = ks.logs.read_committed_view(before_marker)
    assert view.last_stable_offset == whole.batches["base_offset"][3] == 9
    assert view.mask(whole.batches).tolist() == [True] * 3 + [False] * (len(whole.batches) - 3)
    found = offsets(partition.log(0), isolation="read_committed", transactions=view)
    assert found == [*range(9)]


def test_what_a_new_leader_wrote_again_is_not_visible(tmp_path: Path) -> None:
    """A replica truncates its log, and writes the batches of the new leader there."""
    log = TransactionalLog(tmp_path)
    log.write([("data", 1), ("commit", 1), *[("plain", 0)] * 5])
    tables = ks.iter_records(log.folder, isolation="read_committed")
    os.truncate(log.path, int(ks.scan_batches(log.path).batches["position"][3]))
    with log.path.open("ab") as file:
        file.write(data(3, 2, partition_leader_epoch=1) + data(4, 2, partition_leader_epoch=1))
    assert [one for table in tables for one in table["offset"].tolist()] == [0, 2]


def test_a_log_ends_where_its_empty_last_segment_begins(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "topic-0").write()
    end = int(ks.batches.next_offset(ks.scan_batches(partition.log(2)).batches)[-1])
    assert ks.logs.read_committed_view(partition.folder).last_stable_offset == end
    (partition.folder / f"{end + 5:020}.log").touch()
    view = ks.logs.read_committed_view(partition.folder, on_corrupt="stop")  # offsets are missing
    assert view.last_stable_offset == end + 5


@pytest.mark.parametrize(("stable", "visible"), [(9, True), (8, False), (5, False)])
def test_a_batch_across_the_last_stable_offset_is_not_visible(stable: int, visible: bool) -> None:
    """A broker reads up to the batch that contains it."""
    aborted = np.empty(0, COMPLETED_TRANSACTION)
    view = ks.logs.CommittedView.of_aborted(aborted, stable, marker_column="last_offset")
    batch = batch_of([RecordV2(offset_delta=delta) for delta in range(4)], base_offset=5)
    assert view.mask(ks.scan_batches(batch).batches).tolist() == [visible]


def test_the_highest_offset_is_visible() -> None:
    batch = batch_of([RecordV2(b"k")], base_offset=2**63 - 1)
    assert offsets(batch, isolation="read_committed") == [2**63 - 1]


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


def test_the_largest_producer_id() -> None:
    """Producer ids have no end after which another one could come."""
    largest = 2**63 - 1
    aborted = np.array(
        [(largest, 0, 5)], [("producer_id", "i8"), ("first_offset", "i8"), ("marker", "i8")]
    )
    view = ks.logs.CommittedView.of_aborted(aborted, 100, marker_column="marker")
    batches = ks.scan_batches(batch_of([RecordV2()], base_offset=3)).batches.copy()
    batches["producer_id"] = largest
    assert view.are_aborted(batches).tolist() == [True]
