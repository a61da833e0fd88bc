"""`kafkascan groups`, `txn-state`, `share-state`, `metadata` and `remote-segments`."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.support.command_line import DATA, LEGACY, rows, run
from tests.support.internal_topics import TopicLog, commit, share_snapshot, transaction
from tests.support.metadata_logs import metadata_record
from tests.unit.internal_topics.test_remote_segments import ADDED, FINISHED


def test_groups() -> None:
    found = rows("groups", DATA)
    assert [(row["group"], row["offset"], row["lag"]) for row in found] == [
        ("oracle-java-classic", 10, 0),
        ("oracle-java-consumer", 10, 0),
        ("oracle-java-transactional", 7, 3),
        ("oracle-librdkafka", 10, 0),
    ]
    (found,) = rows("groups", DATA, "--group", "oracle-librdkafka", "--as-of", 18)
    assert found["record_offset"] == 17
    (found,) = rows("groups", DATA, "--show", "members", "--as-of", "2026-11-21T03:05:37.100")
    assert found["assignment"] == [{"topic": "consumed", "topic_id": None, "partitions": [0]}]
    assert len(rows("groups", DATA, "--show", "groups")) == 4


def test_offsets_as_csv_are_a_plan_to_reset_them(tmp_path: Path) -> None:
    plan = run("groups", DATA, "--format", "csv").stdout
    assert plan.splitlines()[2] == "oracle-java-transactional,consumed,0,7"
    assert len(plan.splitlines()) == 4
    file = tmp_path / "plan.csv"
    assert run("groups", DATA, DATA, "--output", file).returncode == 0
    assert file.read_text() == plan + plan
    table = run("groups", DATA, "--format", "csv", "--columns", "group,lag").stdout
    assert list(csv.reader(io.StringIO(table)))[:2] == [
        ["group", "lag"],
        ["oracle-java-classic", "0"],
    ]


def test_incomplete_answers_are_findings(tmp_path: Path) -> None:
    topic = TopicLog(tmp_path / "__consumer_offsets-0").add(commit("a", 0, 1), commit("a", 0, 2))
    topic.add((b"\0\x40g", b"\0\0")).without([0]).write()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 2\n")
    done = run("groups", tmp_path, "--as-of", 1)
    assert done.returncode == 1
    assert "the state before offset 1 is not exact" in done.stderr
    done = run("groups", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"{tmp_path / '__consumer_offsets-0'}: offset 2: the record is ignored: unknown record"
        " type 64 [UNKNOWN_RECORD]\n"
    )
    (found,) = rows("groups", tmp_path, "--show", "unknown", code=1)
    assert (found["type"], found["key"], found["value"]) == (64, "004067", "0000")


def test_wrong_usage_and_unreadable_inputs(tmp_path: Path) -> None:
    assert run("groups", LEGACY).returncode == 3
    assert run("groups", tmp_path / "nothing").returncode == 3
    assert run("groups", DATA, "--as-of", "yesterday").returncode == 2
    done = run("groups", DATA, "--as-of", 10**12)
    assert done.returncode == 2
    assert "after the last offset, 21" in done.stderr
    done = run("groups", DATA, "--columns", "lagg")
    assert done.returncode == 2
    assert "lag" in done.stderr


def test_txn_state() -> None:
    found = rows("txn-state", DATA)
    assert [row["transactional_id"] for row in found if row["status"] == "Ongoing"] == ["left-open"]
    assert rows("txn-state", DATA, "--show", "contradictions") == []
    assert len(rows("txn-state", DATA, "--as-of", 1)) == 1
    assert run("txn-state", DATA, "--as-of", 1, "--show", "contradictions").returncode == 2


def test_transactions_that_nobody_will_end_are_findings(tmp_path: Path) -> None:
    topic = TopicLog(tmp_path / "__transaction_state-0")
    topic.add(transaction("t", 8, "Empty")).write()
    TopicLog(tmp_path / "orders-0").add((b"k", b"v"), producer_id=8).write()
    done = run("txn-state", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "orders-0: the transaction of producer 8 is open since offset 0, but 't' has the state"
        " Empty\n"
    )
    (found,) = rows("txn-state", tmp_path, "--show", "contradictions", code=1)
    assert found["symbol"] == "TRANSACTION_ENDED"


@pytest.mark.parametrize("first", [0, 1])
def test_a_transaction_of_a_running_broker_is_no_contradiction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """It begins, or ends, between the reads of its log and of its coordinator's."""
    states = [
        [transaction("t", 8, "Empty")],
        [transaction("t", 8, "Ongoing", ("orders", 0))],
        [transaction("t", 8, "CompleteCommit")],
    ]

    def write(moment: int) -> None:
        topic = TopicLog(tmp_path / "__transaction_state-0")
        topic.add(*itertools.chain(*states[: moment + 1])).write()
        log = TopicLog(tmp_path / "orders-0").add((b"k", b"v"))
        if moment > 0:
            log.add((b"k", b"v"), producer_id=8)
        if moment > 1:
            log.end(8)
        log.write()

    moments = itertools.count(first + 1)
    for name in ("read_transaction_state", "read_transactions"):
        read = getattr(ks, name)

        def read_and_go_on(path: Path, read: Any = read, **options: Any) -> Any:
            found = read(path, **options)
            write(min(next(moments), 2))
            return found

        monkeypatch.setattr(ks, name, read_and_go_on)
    write(first)
    done = run("txn-state", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_metadata(tmp_path: Path) -> None:
    assert len(rows("metadata", DATA)) == 15
    assert len(rows("metadata", DATA, "--as-of", 31)) == 7
    found = rows("metadata", DATA, "--diff", 31, 61, "--columns", "table,key,change")
    assert {"table": "topics", "key": "consumed f6X7Jkr1S_GbfkXcalRjQw", "change": "added"} in found
    assert rows("metadata", DATA, DATA, "--show", "changes") == []
    assert run("metadata", DATA, "--show", "changes").returncode == 2
    assert run("metadata", DATA, "--diff", 1, 2, "--as-of", 1).returncode == 2
    assert run("metadata", LEGACY).returncode == 3
    log = TopicLog(tmp_path / "__cluster_metadata-0").add((None, b"\x01\x6f\x00"))
    done = run("metadata", log.write().parent)
    assert done.returncode == 1
    assert "unknown record type 111" in done.stderr


def test_changed_secrets_are_not_printed(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__cluster_metadata-0")
    for salt in (b"first-salt", b"other-salt"):
        credential = {"name": "u", "mechanism": 1, "salt": salt, "iterations": 4096}
        keys = {"stored_key": salt, "server_key": b"same"}
        log.add((None, metadata_record("UserScramCredential", **credential, **keys)))
    log.write()
    shown = ("metadata", tmp_path, "--diff", 1, 2)
    assert [(row["column"], row["left"], row["right"]) for row in rows(*shown)] == [
        ("salt", "[hidden]", "[hidden]"),
        ("stored_key", "[hidden]", "[hidden]"),
    ]
    for output_format in ("table", "csv", "json", "jsonl"):
        printed = run(*shown, "--format", output_format).stdout
        assert "[hidden]" in printed
        assert not any(form in printed for form in ("salt-", "-salt", b"first-salt".hex()))
    (salt, _) = rows(*shown, "--secrets")
    assert (salt["left"], salt["right"]) == (b"first-salt".hex(), b"other-salt".hex())


def test_remote_segments(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__remote_log_metadata-0").add((None, ADDED), (None, FINISHED))
    log.write()
    (found,) = rows("remote-segments", tmp_path)
    assert (found["topic"], found["state"]) == ("tiered.t-1", "COPY_SEGMENT_FINISHED")
    assert rows("remote-segments", tmp_path, "--show", "deletions") == []
    assert run("remote-segments", DATA).returncode == 3
    log.add((None, b"\x01\x21\x00")).write()
    assert run("remote-segments", tmp_path).returncode == 1


def test_share_state(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__share_group_state-0")
    log.add(share_snapshot("g", 0, start=5, batches=[(5, 9, 2, 1)]), share_snapshot("h", 1)).write()
    (found,) = rows("share-state", tmp_path, "--group", "g")
    assert (found["start_offset"], found["acknowledged"], found["archived"]) == (5, 5, 0)
    (batch,) = rows("share-state", tmp_path, "--show", "batches")
    assert (batch["last_offset"], batch["delivery_state"]) == (9, "Acknowledged")
    assert len(rows("share-state", tmp_path, "--as-of", 1)) == 1
    text = run("share-state", tmp_path, "--format", "csv").stdout.splitlines()
    assert text[0].startswith("group,topic,partition,start_offset,")
    output = tmp_path / "rows.parquet"
    assert run("share-state", tmp_path, "--show", "batches", "--output", output).returncode == 0
    assert run("share-state", DATA).returncode == 3
    log.add((b"\0\x09", b"\0\0")).write()
    assert run("share-state", tmp_path).returncode == 1
