"""The catalogue of remote segments, from bytes that a broker of 4.4.0 wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.schemas.log_messages import REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_encoder import encode
from tests.support.internal_topics import TopicLog

_SEGMENT = (
    "0b746965726564 2e742d31 88f0ca17159d42c787299b03ed7cb405 00000000 00"
    "861a36e361dd47fbbad7cdf6e761e3e8 00"
)
ADDED = bytes.fromhex(
    f"010000 {_SEGMENT} 0000000000000000 00000000000004fc 00000001 000001a202708b90"
    "000001a202708dc1 02 00000000 0000000000000000 00 000fded3 00 00 00"
)
FINISHED = bytes.fromhex(f"010100 {_SEGMENT} 00000001 000001a202708ea9 00 01 00")


@pytest.fixture
def log(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "__remote_log_metadata-2")


def read(log: TopicLog, **options: Any) -> ks.internal_topics.RemoteSegments:
    return ks.internal_topics.read_remote_segments(log.write().parent, **options)


def update(state: int) -> bytes:
    fields = ks_fields(FINISHED)
    return bytes([1, 1, 0]) + encode(
        REMOTE_LOG_RECORDS[1], fields | {"remote_log_segment_state": state}, 0
    )


def ks_fields(value: bytes) -> dict[str, Any]:
    from kafkascan.internal_topics.topic_messages import decode_framed_message

    return decode_framed_message(REMOTE_LOG_RECORDS, value).fields


def test_sizes_are_those_of_the_broker() -> None:
    assert (len(ADDED), len(FINISHED)) == (109, 67)


def test_a_copied_segment(log: TopicLog) -> None:
    log.add((None, ADDED), (None, FINISHED))
    found = read(log)
    assert found.segments.rows() == [
        {
            "topic": "tiered.t-1", "partition": 0, "start_offset": 0, "end_offset": 1276,
            "state": "COPY_SEGMENT_FINISHED", "size": 1_040_083, "max_timestamp": 0x1A202708B90,
            "event_timestamp": 0x1A202708EA9, "broker_id": 1, "leader_epochs": ["0:0"],
            "segment_id": "hho242HdR_u6183252Hj6A", "topic_id": "iPDKFxWdQseHKZsD7Xy0BQ",
            "custom_metadata": None, "has_transactions": True, "metadata_partition": 2,
            "record_offset": 1,
        }
    ]  # fmt: skip
    assert found.is_exact
    assert read(log, as_of=1).segments["state"] == ["COPY_SEGMENT_STARTED"]
    assert found.segments.to_arrow().num_rows == 1


def test_deleted_segments_are_gone(log: TopicLog) -> None:
    log.add((None, ADDED), (None, FINISHED), (None, update(2)), (None, update(3)))
    assert len(read(log).segments) == 0
    assert read(log, as_of=3).segments["state"] == ["DELETE_SEGMENT_STARTED"]


def test_partitions_that_are_being_deleted(log: TopicLog) -> None:
    place = ks_fields(ADDED)["remote_log_segment_id"]["topic_id_partition"]
    fields = {
        "topic_id_partition": place, "broker_id": 1, "event_timestamp_ms": 5,
        "remote_partition_delete_state": 1,
    }  # fmt: skip
    log.add((None, bytes([1, 2, 0]) + encode(REMOTE_LOG_RECORDS[2], fields, 0)))
    (row,) = read(log).deletions.rows()
    assert (row["topic"], row["state"]) == ("tiered.t-1", "DELETE_PARTITION_STARTED")


def test_what_does_not_fit_is_named(log: TopicLog) -> None:
    log.add((None, FINISHED), (None, b"\x01\x21\x00x"), (None, ADDED + b"x"))
    found = read(log)
    assert [(one.symbol, one.partition, one.message) for one in found.problems] == [
        ("UNKNOWN_SEGMENT", 2, "offset 0: the segment hho242HdR_u6183252Hj6A is not known"),
        ("UNKNOWN_RECORD", 2, "offset 1: the record is ignored: unknown record type 33"),
        ("UNKNOWN_RECORD", 2, "offset 2: the record is ignored: 1 bytes follow the message"),
    ]
    assert found.unknown["value"] == [b"\x01\x21\x00x", ADDED + b"x"]
    assert not found.is_exact


@pytest.mark.parametrize("first", [0, 1])
def test_a_topic_whose_beginning_is_deleted_is_not_exact(log: TopicLog, first: int) -> None:
    """The segments that its first records added are not known."""
    log.add((None, ADDED), (None, FINISHED))
    folder = log.without(range(first)).write()
    (folder / f"{0:020}.log").rename(folder / f"{first:020}.log")
    found = ks.internal_topics.read_remote_segments(folder.parent)
    assert found.is_exact == (first == 0)
    expected = [
        ("UNKNOWN_SEGMENT", "offset 1: the segment hho242HdR_u6183252Hj6A is not known"),
        ("DELETED_RECORDS", "the records before offset 1 are deleted"),
    ]
    problems = [(one.symbol, one.message) for one in found.problems]
    assert problems == (expected if first else [])


def test_damage_in_the_topic_is_a_problem(log: TopicLog) -> None:
    folder = log.add((None, ADDED), (None, FINISHED)).write()
    with (folder / f"{0:020}.log").open("r+b") as file:
        file.seek(len(log.batches[0]) + 8)
        file.write(b"\xff" * 4)
    found = ks.internal_topics.read_remote_segments(folder.parent)
    assert found.segments["state"] == ["COPY_SEGMENT_STARTED"]
    (problem,) = found.problems
    assert (problem.symbol, problem.topic, problem.partition) == (
        "BAD_LENGTH", "__remote_log_metadata", 2,
    )  # fmt: skip
    assert (problem.path, problem.position) == (
        str(folder / f"{0:020}.log"), len(log.batches[0]),
    )  # fmt: skip
    assert not found.is_exact


def test_keys_and_tombstones_of_a_compacted_topic(log: TopicLog) -> None:
    """KIP-1266: the records of a segment have a key, and a tombstone deletes them."""
    key = b"a layout of a later version"
    log.add((key, ADDED), (key, FINISHED), (key, None), (b"another", None))
    assert read(log, as_of=2).segments["state"] == ["COPY_SEGMENT_FINISHED"]
    found = read(log)
    assert (len(found.segments), len(found.unknown), len(found.problems)) == (0, 0, 0)
    assert found.deleted_ids == {"hho242HdR_u6183252Hj6A"}


@pytest.mark.parametrize("state", [2, 3])
def test_a_deleted_segment_without_its_first_record_is_a_note(log: TopicLog, state: int) -> None:
    found = read(log.add((b"k", update(state))))
    (note,) = found.problems
    assert (note.symbol, note.severity, note.rows_missing) == (
        "UNKNOWN_SEGMENT", ks.Severity.NOTE, False,
    )  # fmt: skip


def test_a_copied_segment_without_its_first_record_is_missing(log: TopicLog) -> None:
    (problem,) = read(log.add((b"k", FINISHED))).problems
    assert (problem.severity, problem.rows_missing) == (ks.Severity.WARNING, True)


def test_a_tagged_field_of_a_later_version_is_a_note(log: TopicLog) -> None:
    later = FINISHED[:-1] + b"\x01\x05\x02ab"
    found = read(log.add((None, ADDED), (None, later), (None, later)))
    assert found.segments["state"] == ["COPY_SEGMENT_FINISHED"]
    (note,) = found.problems
    assert (note.symbol, note.severity, note.rows_missing) == (
        "UNKNOWN_FIELD", ks.Severity.NOTE, False,
    )  # fmt: skip
    assert "tagged field 5 of RemoteLogSegmentMetadataUpdateRecord" in note.message
    assert "in 2 records, first at offset 1" in note.message
