"""Concurrent scans of two files, and the states of indexes in the view `segments`."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kafkascan as ks
from tests.spark.logs import DATA, OLD_DATA, damaged_log, plain_batch, rows, segment_path, tasks

KINDS = {"index_state": "index", "time_index_state": "timeindex"}


@pytest.mark.parametrize("view", ["batches", "segments"])
def test_rows_of_concurrent_files_are_in_order(view: str) -> None:
    given = {"path": str(DATA), "view": view, "verify": "true"}
    one_by_one = rows(**given, prefetch="0")
    assert len(one_by_one) > 40
    assert rows(**given, prefetch="3") == one_by_one
    places = [(row["topic"], row["partition"], row["segment"]) for row in one_by_one]
    assert places == sorted(places)


@pytest.mark.parametrize("prefetch", ["0", "3"])
def test_the_first_damage_is_reported(tmp_path: Path, prefetch: str) -> None:
    """The error is that of the first damaged file, not of the file that is scanned first."""
    large = b"".join(plain_batch(offset) for offset in range(0, 40_000, 2))
    broken = damaged_log().set(3, "magic", 9).log
    segment_path(tmp_path, "a-large").write_bytes(large + b"\x7f" * 99)
    for topic in ("b", "c"):
        segment_path(tmp_path, topic).write_bytes(broken)
    given = {"path": str(tmp_path), "view": "segments", "prefetch": prefetch}
    with pytest.raises(ValueError, match="a-large-0"):
        rows(**given, mode="FAILFAST")
    assert rows(**given, mode="DROPMALFORMED") == []
    assert len(rows(**given)) == 3


@pytest.mark.parametrize("view", ["batches", "records"])
def test_dropped_batches_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, view: str
) -> None:
    for topic in ("a", "b", "c"):
        segment_path(tmp_path, topic).write_bytes(damaged_log().flip(3, 70).flip(7, 70).log)
    given = {"path": str(tmp_path), "view": view, "verify": "true", "mode": "DROPMALFORMED"}
    assert len(tasks(**given)) == 1
    with caplog.at_level(logging.WARNING, "kafkascan.spark"):
        rows(**given)
    assert caplog.messages[-1] == "dropped 6 damaged batches in this task"
    assert sum(str(tmp_path) in message for message in caplog.messages) == 6


def test_the_error_of_a_batch_names_its_file(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "topic")
    path.write_bytes(damaged_log().flip(3, 70).log)
    found = rows(path=str(tmp_path), view="batches", verify="true")
    (error,) = {row["error"] for row in found} - {None}
    assert error.startswith(f"{path}: position ")


@pytest.mark.parametrize("view", ["batches", "segments"])
def test_the_status_says_what_was_checked(tmp_path: Path, view: str) -> None:
    path = segment_path(tmp_path, "topic")
    path.write_bytes(damaged_log().flip(3, 70).log)
    segment_path(tmp_path, "topic", base_offset=24).write_bytes(plain_batch(24))
    given = {"path": str(tmp_path), "view": view}
    crc_column = {"batches": "crc_is_valid", "segments": "bad_checksums"}[view]

    def statuses(**options: str) -> list[str]:
        return [row["status"] for row in rows(**given, **options)]

    assert set(statuses()) == set(statuses(mode="FAILFAST")) == {"HEADERS_OK"}
    assert set(statuses(columns="status", verify="false")) == {"HEADERS_OK"}
    verified = statuses(verify="true")
    assert verified == statuses(columns=f"status,{crc_column}")
    assert verified.count("CHECKSUM_MISMATCH") == 1
    assert set(verified) == {"OK", "CHECKSUM_MISMATCH"}
    with pytest.raises(ValueError, match="CHECKSUM_MISMATCH"):
        statuses(verify="true", mode="FAILFAST")
    dropped = statuses(verify="true", mode="DROPMALFORMED")
    assert dropped == [one for one in verified if one == "OK"]


def states_by_checks(log: Path) -> dict[str, str]:
    """The states of a log's indexes according to `check_index`."""
    batches = ks.scan_batches(log).batches
    states = {}
    for column, kind in KINDS.items():
        index = log.with_suffix(f".{kind}")
        if not index.exists():
            states[column] = "MISSING"
            continue
        errors = {
            one.symbol
            for one in ks.check_index(index, batches)
            if one.severity is ks.Severity.ERROR
        }
        states[column] = "DAMAGED" if "ODD_INDEX_SIZE" in errors else "WRONG" if errors else "OK"
    return states


@pytest.mark.parametrize("data", [DATA, OLD_DATA], ids=lambda path: path.parent.name)
def test_golden_indexes(data: Path) -> None:
    found = rows(path=str(data), view="segments")
    for row in found:
        assert {column: row[column] for column in KINDS} == states_by_checks(Path(row["path"]))
    assert {row["index_state"] for row in found} <= {"OK", "MISSING"}


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_change_of_an_index(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    source = data.draw(st.sampled_from(sorted((DATA / "small-segments-0").glob("*.index"))[:4]))
    for kind in ("log", "index", "timeindex"):
        target = segment_path(folder, "topic", base_offset=int(source.stem)).with_suffix(f".{kind}")
        shutil.copy(source.with_suffix(f".{kind}"), target)
    kind = data.draw(st.sampled_from(sorted(KINDS.values())))
    index = target.with_suffix(f".{kind}")
    content = bytearray(index.read_bytes())
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
    index.write_bytes(content)
    (row,) = rows(path=str(folder), view="segments")
    assert {column: row[column] for column in KINDS} == states_by_checks(Path(row["path"]))
    assert row["status"] == "HEADERS_OK"


def test_unreadable_indexes(tmp_path: Path) -> None:
    log = segment_path(tmp_path, "topic")
    log.write_bytes(plain_batch(0))
    log.with_suffix(".index").mkdir()
    os.mkfifo(log.with_suffix(".timeindex"))
    (row,) = rows(path=str(tmp_path), view="segments")
    assert (row["index_state"], row["time_index_state"]) == ("UNKNOWN", "UNKNOWN")
    assert (row["status"], row["batches"]) == ("HEADERS_OK", 1)


def test_the_largest_offset_has_no_successor(tmp_path: Path) -> None:
    largest = 2**63 - 1
    segment_path(tmp_path, "a").write_bytes(
        plain_batch(largest, 1, base_timestamp=0, max_timestamp=0)
    )
    (row,) = rows(path=str(tmp_path), view="segments")
    assert row["last_offset"] == largest


def test_the_index_of_a_file_whose_name_is_no_offset(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a", base_offset=2**63)
    path.write_bytes(plain_batch(0))
    path.with_suffix(".index").write_bytes(bytes(8))
    (row,) = rows(path=str(path), view="segments")
    assert [row[name] for name in KINDS] == ["UNKNOWN", "UNKNOWN"]
