"""The time relative to which transactions are old: now, or the latest write to a copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs.data_dir_lock import is_locked, locked
from tests.support.partitions import NOW, HealthyPartition

_HOUR = 3_600_000
_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "ab")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


def of_transactions(path: Path, **options: int) -> list[tuple[str, str]]:
    found = ks.audit(path, **options).findings  # type: ignore[arg-type]
    return [(one.symbol, one.message) for one in found if "TRANSACTION" in one.symbol]


@pytest.fixture
def copied(partition: HealthyPartition) -> Path:
    """A log that ends in an open transaction, an hour before now."""
    partition.data(8, transactional=True)
    return partition.write().folder


def test_an_open_transaction_at_the_end_of_a_copy_is_a_note(copied: Path) -> None:
    ((symbol, message),) = of_transactions(copied)
    assert symbol == "OPEN_TRANSACTION"
    assert "has been idle for 0 minutes at the latest write to the log, 20" in message
    ((symbol, message),) = of_transactions(copied, now_ms=NOW)
    assert symbol == "HANGING_TRANSACTION"
    assert "has been idle for 60 minutes; kafka-transactions.sh" in message
    assert of_transactions(copied / f"{0:020}.log") == []


@pytest.mark.parametrize("producer", [7, -1])
def test_later_writes_show_that_it_hangs(producer: int, partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    partition.data(producer, base_timestamp=NOW, max_timestamp=NOW)
    ((symbol, message),) = of_transactions(partition.write().folder)
    assert symbol == "HANGING_TRANSACTION"
    assert "has been idle for 60 minutes at the latest write to the log, " in message


def test_a_write_in_the_future_is_now(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    late = NOW + 9 * 24 * _HOUR
    partition.data(-1, base_timestamp=late, max_timestamp=late)
    ((symbol, message),) = of_transactions(partition.write().folder)
    assert symbol == "HANGING_TRANSACTION"
    minutes = re.search(r"idle for (\d+) minutes", message)
    assert minutes is not None
    assert 60 <= int(minutes[1]) < 9 * 24 * 60  # since the start of the tests, not in nine days


def test_the_log_of_a_running_broker_is_as_old_as_now(copied: Path) -> None:
    data_dir = copied.parent
    assert not is_locked(data_dir)
    (data_dir / ".lock").touch()
    assert not is_locked(data_dir)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(data_dir / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(data_dir)
        ((symbol, message),) = of_transactions(copied)
        assert symbol == "HANGING_TRANSACTION"
        assert "latest write" not in message
        holder.communicate()
    assert not is_locked(data_dir)
    assert of_transactions(copied)[0][0] == "OPEN_TRANSACTION"


def test_a_lock_of_this_process_is_seen_and_kept(copied: Path) -> None:
    (copied.parent / ".lock").touch()
    with locked(copied.parent):
        assert is_locked(copied.parent)
        command = [sys.executable, "-c", _HOLD, str(copied.parent / ".lock")]
        done = subprocess.run(command, input=b"", capture_output=True, check=False)
        assert done.returncode != 0
    assert not is_locked(copied.parent)
