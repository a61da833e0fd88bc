"""Files that are not regular ones."""

from __future__ import annotations

import os

import pytest

import kafkascan as ks
from kafkascan.io.folders import DiskFolder
from tests.support.partitions import HealthyPartition


@pytest.mark.parametrize(
    "name",
    ["index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata"],
)
def test_a_fifo_among_the_files(name: str, partition: HealthyPartition) -> None:
    partition.write()
    first = partition.log(1)
    path = first.with_suffix(f".{name}") if "-" not in name and "." not in name else (
        partition.folder / name
    )  # fmt: skip
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    found = {(one.symbol, one.file) for one in ks.audit(partition.folder, deep=True).findings}
    assert found == {("UNREADABLE", path.name)}
    assert len(ks.read_transactions(partition.folder)) == 6
    with pytest.raises(OSError, match="not a regular file"):
        DiskFolder(partition.folder).read(path.name)


def test_a_fifo_as_a_log_or_a_checkpoint(partition: HealthyPartition) -> None:
    partition.write()
    os.mkfifo(partition.folder.parent / "cleaner-offset-checkpoint")
    (one,) = ks.audit(partition.folder).findings
    assert (one.symbol, one.file) == ("UNREADABLE", "cleaner-offset-checkpoint")
    assert "not a regular file" in one.message
    partition.log(2).unlink()
    os.mkfifo(partition.log(2))
    assert ("UNREADABLE", partition.log(2).name) in {
        (one.symbol, one.file) for one in ks.audit(partition.folder).findings
    }


def test_a_recovery_refuses_a_fifo_as_a_checkpoint(partition: HealthyPartition) -> None:
    partition.write()
    os.mkfifo(partition.folder.parent / "recovery-point-offset-checkpoint")
    with pytest.raises(OSError, match="not a regular file"):
        ks.recover(partition.folder.parent)
