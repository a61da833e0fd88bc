"""The time relative to which transactions are old: now, or the latest write to a copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs.data_dir_lock import is_locked, locked
from tests.support.command_line import rows, run
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


def open_transaction(path: Path, **options: int) -> dict[str, object]:
    """Return the row of the open transaction that `txns` lists, for which Arrow has the same."""
    found = ks.read_transactions(path, **options)  # type: ignore[arg-type]
    found = found.select(found.is_open)
    names = ("age_ms", "age_at", "clock", "is_hanging")
    (row,) = zip(*(found.to_columns()[name] for name in names), strict=True)
    table = found.to_arrow().select(names).to_pylist()[0]
    assert table["age_at"].timestamp() * 1000 == row[1]
    assert (table["age_ms"], table["clock"], table["is_hanging"]) == (row[0], row[2], row[3])
    return dict(zip(names, row, strict=True))


def test_lists_of_transactions_use_the_same_times(copied: Path) -> None:
    written = NOW - _HOUR
    row = open_transaction(copied)
    assert row["clock"] == "latest_write"
    assert row["age_ms"] == 0
    assert not row["is_hanging"]
    done = run("txns", copied)
    assert (done.returncode, done.stderr) == (0, "")
    row = open_transaction(copied, now_ms=NOW)
    assert (row["clock"], row["age_at"], row["is_hanging"]) == ("now", NOW, True)
    assert written < NOW - int(str(row["age_ms"])) < NOW
    done = run("txns", copied, "--now", str(NOW))
    assert done.returncode == 1
    assert done.stderr == "orders-0: a transaction hangs\n"


def test_lists_of_transactions_name_the_latest_write(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    partition.data(-1, base_timestamp=NOW, max_timestamp=NOW)
    folder = partition.write().folder
    row = open_transaction(folder)
    assert (row["clock"], row["age_at"], row["is_hanging"]) == ("latest_write", NOW, True)
    (listed,) = rows("txns", folder, code=1)
    assert (listed["clock"], listed["age_at"], listed["is_hanging"]) == ("latest_write", NOW, True)
    sentence = "orders-0: a transaction hangs at the latest write to the log, "
    assert run("txns", folder).stderr.startswith(sentence)


def test_logs_of_one_call_have_times_of_their_own(tmp_path: Path) -> None:
    for number, late in enumerate((0, _HOUR)):
        partition = HealthyPartition(tmp_path / f"orders-{number}")
        partition.data(8, transactional=True)
        if late:
            partition.data(-1, base_timestamp=NOW, max_timestamp=NOW)
        partition.write()
    found = ks.read_transactions(tmp_path)
    assert found.hanging_logs == ["orders-1"]
    assert found.now_ms[0] < found.now_ms[1] == NOW
    assert found.select(found.is_hanging).is_latest_write.all()


def test_an_open_transaction_at_the_end_of_a_copy_is_a_note(copied: Path) -> None:
    ((symbol, message),) = of_transactions(copied)
    assert symbol == "OPEN_TRANSACTION"
    assert re.search(r"has been idle for \d+ ms at the latest write to the log, 20", message)
    ((symbol, message),) = of_transactions(copied, now_ms=NOW)
    assert symbol == "HANGING_TRANSACTION"
    assert "has been idle for 59 min" in message
    assert of_transactions(copied / f"{0:020}.log") == []


@pytest.mark.parametrize("producer", [7, -1])
def test_later_writes_show_that_it_hangs(producer: int, partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    partition.data(producer, base_timestamp=NOW, max_timestamp=NOW)
    ((symbol, message),) = of_transactions(partition.write().folder)
    assert symbol == "HANGING_TRANSACTION"
    assert "has been idle for 59 min at the latest write to the log, " in message


def test_a_write_in_the_future_is_now(partition: HealthyPartition) -> None:
    partition.data(8, transactional=True)
    late = NOW + 9 * 24 * _HOUR
    partition.data(-1, base_timestamp=late, max_timestamp=late)
    ((symbol, message),) = of_transactions(partition.write().folder)
    assert symbol == "HANGING_TRANSACTION"
    assert "idle for 1 h" in message  # since the start of the tests, not in nine days


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
        row = open_transaction(copied)
        assert (row["clock"], row["is_hanging"]) == ("now", True)
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
