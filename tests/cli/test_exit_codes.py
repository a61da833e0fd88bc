"""Exit codes: one table of commands, and what each of them does with the same inputs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import DATA, Done, run

# Every command that reads logs or segment files, and its exit code for a log with a damaged
# header. LOGS is replaced by the input, OUT by a path that does not exist.
COMMANDS = {
    "info LOGS": 1,
    "verify LOGS": 1,
    "batches LOGS": 1,
    "records LOGS": 1,
    "index check LOGS": 1,
    "index build LOGS --output OUT": 1,
    "index lookup LOGS --offset 999": 3,
    "audit LOGS": 1,
    "txns LOGS": 1,
    "producers LOGS": 1,
    "count LOGS": 1,
    "diff LOGS HEALTHY": 1,
    "diff HEALTHY LOGS": 1,
    "diff LOGS --save OUT.parquet": 1,
    "advise LOGS --codec gzip --sample 1": 1,
    "report LOGS -o OUT.html": 1,
    "recover LOGS": 1,
    "salvage LOGS": 1,
    "salvage LOGS OUT": 1,
    "convert LOGS --to-magic 2 --output OUT": 1,
    "restamp LOGS --offset-shift 1 --output OUT": 1,
    "scrub LOGS --from-offset 5 --output OUT": 1,
}
# They take the folder of a partition, not a data dir.
OF_A_PARTITION = ("index lookup", "convert", "restamp", "scrub")
LOG, NEXT_LOG = f"{0:020}.log", f"{10**6:020}.log"


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A data dir in which no command finds anything."""
    data_dir = tmp_path / "brokers" / "first"
    shutil.copytree(DATA / "idempotent-0", data_dir / "idempotent-0")
    ks.recover(data_dir, write=True, backup=False)
    return data_dir


@pytest.fixture
def logs(healthy: Path, tmp_path: Path) -> Path:
    """A copy of it that tests may change."""
    return Path(shutil.copytree(healthy, tmp_path / "changed"))


@dataclass(frozen=True)
class Runner:
    """Runs a command of the table."""

    command: str
    healthy: Path
    out: Path

    def on(self, path: Path) -> Done:
        """Run it on a path."""
        names = {"LOGS": path, "HEALTHY": self.healthy}
        names |= {
            f"OUT{suffix}": Path(f"{self.out}{suffix}") for suffix in ("", ".parquet", ".html")
        }
        return run(*(names.get(word, word) for word in self.command.split()))

    def on_data_dir(self, path: Path) -> Done:
        """Run it on a data dir, or on the partition in it if it takes one."""
        takes_one = self.command.startswith(OF_A_PARTITION)
        return self.on(path / "idempotent-0" if takes_one else path)


@pytest.fixture(params=COMMANDS)
def runner(
    request: pytest.FixtureRequest, healthy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    # Commands refuse to write below what they read.
    return Runner(request.param, healthy, tmp_path_factory.mktemp("outside") / "out")


def test_healthy_logs(runner: Runner, logs: Path) -> None:
    runner = replace(runner, command=runner.command.replace("999", "0"))
    done = runner.on_data_dir(logs)
    assert done.returncode == 0, done.stderr


def test_a_damaged_log(runner: Runner, logs: Path) -> None:
    path = logs / "idempotent-0" / LOG
    data = bytearray(path.read_bytes())
    data[16] = 9  # the magic byte of the first batch
    data[80] ^= 1  # and one of its records, so that nothing can repair it
    path.write_bytes(data)
    done = runner.on_data_dir(logs)
    assert done.returncode == COMMANDS[runner.command], done.stderr
    assert done.stderr or runner.command.startswith(("audit", "report"))


def test_a_segment_that_cannot_be_read(runner: Runner, logs: Path) -> None:
    # Root may read any file; nobody can read a link to itself.
    path = logs / "idempotent-0" / NEXT_LOG
    path.symlink_to(path)
    done = runner.on_data_dir(logs)
    assert done.returncode == 3
    assert NEXT_LOG in done.stderr or runner.command.startswith(("audit", "report"))


def test_a_folder_without_logs(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = runner.on(tmp_path / "empty")
    assert done.returncode == 3
    assert f"{tmp_path / 'empty'}: no logs here [NO_LOGS]" in done.stderr
    missing = runner.on(tmp_path / "missing")
    assert missing.returncode == 3
    assert "No such file or directory" in missing.stderr


def test_the_parent_of_a_data_dir(runner: Runner, healthy: Path, tmp_path: Path) -> None:
    # Data dirs may have names that a partition could have.
    shutil.copytree(healthy, tmp_path / "brokers" / "data-2")
    for parent, names in (
        (tmp_path / "brokers", "'data-2', 'first'"),
        (tmp_path, "'brokers/data-2', 'brokers/first'"),
    ):
        done = runner.on(parent)
        assert done.returncode == 3
        assert f"{parent}: no logs here; there are logs in {names} [NO_LOGS]" in done.stderr


def test_a_partition_without_live_segments(runner: Runner, logs: Path) -> None:
    folder = logs / "idempotent-0"
    for path in folder.glob("*.log"):
        path.rename(f"{path}.deleted")
    done = runner.on(folder)
    # A broker that starts creates an empty log, and so does recovery.
    is_recovery = runner.command.startswith("recover")
    assert done.returncode == (1 if is_recovery else 3)
    assert is_recovery or "no live segments, only 1 file that" in done.stderr
