"""`kafkascan audit`, `txns`, `producers` and `count`."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kafkascan.format.times import age_text
from kafkascan.logs.data_dir_lock import UNCLEAN_SHUTDOWN
from tests.support.command_line import DATA, KILLED, LEGACY, rows, run, run_process
from tests.support.partitions import HealthyPartition
from tests.unit.logs.test_log_follower import GrowingLog

VERBS = ("audit", "txns", "producers", "count")
NOW = ("--now", "2026-11-22")


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    return HealthyPartition(tmp_path / "orders-0").write()


def test_a_kind_with_many_findings_does_not_hide_the_others(tmp_path: Path) -> None:
    for number in range(25):
        GrowingLog(tmp_path / f"orders-{number}").append()
    everything = rows("audit", tmp_path)
    (symbol, count), *_ = Counter(row["symbol"] for row in everything).most_common()
    assert count >= 25
    few, many = run("audit", tmp_path), run("audit", tmp_path, "--all-findings")
    assert few.stdout.count(symbol) == 10
    assert f"{symbol}: {count - 10} more findings" in few.stderr
    assert many.stdout.count(symbol) == count
    assert "more findings" not in many.stderr
    assert few.returncode == many.returncode


def test_audit(partition: HealthyPartition) -> None:
    assert rows("audit", partition.folder, "--deep") == []
    assert rows("audit", LEGACY, "--alarms") == []
    assert {row["severity"] for row in rows("audit", KILLED)} == {"note"}
    first, *_ = run("audit", KILLED).stderr.splitlines()
    assert first == f"{KILLED}: {UNCLEAN_SHUTDOWN}"
    assert UNCLEAN_SHUTDOWN not in run("audit", DATA).stderr
    data = bytearray(partition.log(1).read_bytes())
    data[500] ^= 1
    partition.log(1).write_bytes(data)
    (found,) = rows("audit", partition.folder, code=1)
    assert (found["symbol"], found["file"]) == ("CHECKSUM_MISMATCH", partition.log(1).name)
    assert found["advice"]
    assert rows("audit", partition.folder, "--no-verify") == []
    shown = run("audit", partition.folder)
    assert shown.returncode == 1
    assert "CHECKSUM_MISMATCH" in shown.stdout
    assert rows("audit", partition.folder, "--no-verify", "--max-message-bytes", 100, code=1)


def test_txns() -> None:
    (found,) = rows("txns", DATA)  # a copy: the clock is its latest timestamp, a marker's
    # Its records are old, but its coordinator has just begun it.
    assert (found["state"], found["first_offset"], found["is_hanging"]) == ("open", 37, False)
    assert (found["coordinator_state"], found["transactional_id"]) == ("Ongoing", "left-open")
    assert (found["clock"], found["command"]) == ("latest_write", None)
    (audited,) = [row for row in rows("audit", DATA, code=1)
                  if row["symbol"] == "OPEN_TRANSACTION"]  # fmt: skip
    assert f"{age_text(found['age_ms'])} at the latest write" in audited["message"]
    (found,) = rows("txns", DATA, *NOW, code=1)
    assert (found["clock"], found["is_hanging"]) == ("now", True)
    assert str(found["command"]).endswith("--partition 0 --start-offset 37")
    (found,) = rows("txns", DATA, "--now", "2024-04-24T23:10:00")
    assert found["is_hanging"] is False
    assert found["age_ms"] == 199_999
    assert rows("txns", DATA, "--state", "hanging", "--timeout-ms", 10**14) == []
    assert len(rows("txns", DATA, "--state", "aborted", *NOW, code=1)) == 5
    assert len(rows("txns", DATA, "--state", "empty")) == 1
    assert len(rows("txns", DATA, "--state", "all")) == 13
    message = "transactions-0: a transaction hangs; its coordinator has 'left-open' as Ongoing for"
    assert run("txns", DATA, *NOW).stderr == f"{message} 20 h (timeout 15 min)\n"
    for options, kind in (((), "open "), (("--state", "all"), "")):
        done = run("txns", KILLED, *options)
        assert done.returncode == 0
        assert done.stderr.startswith(f"{KILLED}: no {kind}transactions\n")
    done = run("txns", DATA, "--topic", "idempotent")
    assert done.stderr == f"{DATA}: no open transactions\n"


def test_producers() -> None:
    found = rows("producers", DATA / "codecs-java-0", "--sample", 3)
    assert [row["producer_id"] for row in found] == [-1]
    assert found[0]["codecs"] == "none+gzip+snappy+lz4+zstd"
    assert found[0]["sampled_batches"] == 3
    assert float(str(found[0]["compression_ratio"])) > 1
    shown = run("producers", DATA / "idempotent-0").stdout.splitlines()
    assert shown[0] == "topic idempotent  partition 0"
    assert shown[1].split()[0] == "producer_id"
    assert len(shown) == 4


def test_count() -> None:
    (found,) = rows("count", DATA / "transactions-0")
    assert (found["records"], found["committed_records"], found["open_records"]) == (32, 14, 2)


def test_counts_that_are_not_exact_are_findings() -> None:
    assert not all(row["is_exact"] for row in rows("count", LEGACY, code=1))
    message = run("count", LEGACY / "magic-0-0").stderr
    assert "14 compressed messages are not counted: count with --deep (in Python" in message
    exact = rows("count", LEGACY, "--deep")
    assert all(row["is_exact"] for row in exact)
    assert rows("sql", "SELECT topic, records FROM counts", LEGACY) == [
        {"topic": row["topic"], "records": row["records"]} for row in exact
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_formats(verb: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    code = 1 if verb == "audit" else 0
    expected = rows(verb, DATA, code=code)
    text = run(verb, DATA, "--format", "csv").stdout
    listed = list(csv.DictReader(io.StringIO(text)))
    assert list(listed[0]) == list(expected[0])
    assert len(listed) == len(expected)
    lines = run(verb, DATA, "--format", "jsonl").stdout.splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(row) for row in expected]
    output = tmp_path / "rows.parquet"
    done = run(verb, DATA, DATA, "--output", output)
    assert done.returncode == code, done.stderr
    table = pyarrow.parquet.read_table(output)
    assert table.num_rows == 2 * len(expected)
    assert set(table.column_names) == set(expected[0])


@pytest.mark.parametrize("verb", VERBS)
def test_tars_and_files(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "backup.tar"
    subprocess.run(["tar", "-cf", path, "-C", DATA.parent, "data"], check=True)
    code = 1 if verb in ("audit", "txns") else 0
    options = NOW if verb in ("audit", "txns") else ()
    of_tar, of_disk = (rows(verb, where, *options, code=code) for where in (path, DATA))
    for row in (*of_tar, *of_disk):
        row.pop("path", None)
    assert of_tar == of_disk
    one = DATA / "idempotent-0" / "00000000000000000000.log"
    assert run(verb, one).returncode == 0
    packed = tmp_path / "backup.tar.gz"
    subprocess.run(["tar", "-czf", packed, "-C", DATA.parent, "data"], check=True)
    refused = run(verb, packed)
    assert refused.returncode == 3
    assert "decompress it (gunzip)" in refused.stderr


def test_other_verbs_read_tars(tmp_path: Path) -> None:
    path = tmp_path / "backup.tar"
    subprocess.run(["tar", "-cf", path, "-C", DATA.parent, "data"], check=True)
    of_tar, of_disk = rows("info", path), rows("info", DATA)
    assert of_tar == of_disk
    assert rows("verify", path)
    found = rows("records", path, "--limit", 5)
    assert [row["topic"] for row in found] == ["__cluster_metadata"] * 5


@pytest.mark.parametrize("verb", VERBS)
def test_unreadable_inputs_and_wrong_usage(verb: str, tmp_path: Path) -> None:
    assert run(verb, tmp_path / "nothing").returncode == 3
    assert run(verb, DATA, "--format", "parquet").returncode == 2
    assert run(verb, DATA, "--output", tmp_path).returncode == 2
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"x" * 100)
    assert run(verb, path, "--output", path).returncode == 2
    assert run(verb, path).returncode == 1
    assert path.read_bytes() == b"x" * 100


def test_a_real_process() -> None:
    done = run_process("txns", DATA, *NOW)
    assert done.returncode == 1
    assert "--start-offset 37" in done.stdout
    assert "a transaction hangs" in done.stderr
