"""Tables of Kafka's own topics have what Kafka's tool printed about their records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.support.paths import GOLDEN

_RECORD = re.compile(r"^\| offset: .* headerKeys: \[\] key: (\{.*?\}) payload: (\{.*\}|<DELETE>)$")
_METADATA = re.compile(r"^\| offset: .* payload: (\{.*\})$")
_OFFSET_KEYS = ("0", "1")


def _runs(topic: str) -> list[str]:
    return sorted(path.parents[1].name for path in GOLDEN.glob(f"*/data/{topic}-0"))


def _lines(run: str, folder: str, suffix: str = ".log") -> Iterator[str]:
    for dump in sorted((GOLDEN / run / "dump" / folder).glob(f"*{suffix}.txt")):
        yield from dump.read_text().splitlines()


def _records(run: str, topic: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield type, fields of the key, and fields of the value."""
    for line in _lines(run, f"{topic}-0"):
        if match := _RECORD.match(line):
            key, value = json.loads(match[1]), match[2]
            yield (
                key["type"],
                key["data"],
                None if value == "<DELETE>" else json.loads(value)["data"],
            )


@pytest.mark.parametrize("run", _runs("__consumer_offsets"))
def test_committed_offsets(run: str) -> None:
    expected = {}
    for kind, key, value in _records(run, "__consumer_offsets"):
        if kind in _OFFSET_KEYS:
            expected[key["group"], key["topic"], key["partition"]] = value
    found = ks.read_groups(GOLDEN / run / "data")
    assert found.is_exact
    assert expected
    assert {
        (row["group"], row["topic"], row["partition"]): {
            "offset": row["offset"],
            "leaderEpoch": -1 if row["leader_epoch"] is None else row["leader_epoch"],
            "metadata": row["metadata"],
            "commitTimestamp": row["commit_timestamp"],
        }
        for row in found.offsets.rows()
    } == {
        place: {name: value[name] for name in value if name != "topicId"}
        for place, value in expected.items()
        if value is not None
    }


@pytest.mark.parametrize("run", _runs("__transaction_state"))
def test_states_of_transactions(run: str) -> None:
    expected = {}
    for _, key, value in _records(run, "__transaction_state"):
        expected[key["transactionalId"]] = value
    found = ks.read_transaction_state(GOLDEN / run / "data")
    assert found.is_exact
    assert expected
    assert {
        row["transactional_id"]: (
            row["producer_id"], row["producer_epoch"], row["status"], row["start_timestamp"],
        )
        for row in found.transactions.rows()
    } == {
        name: (
            value["producerId"], value["producerEpoch"], value["transactionStatus"],
            value["transactionStartTimestampMs"],
        )
        for name, value in expected.items()
    }  # fmt: skip


_SHARE_NUMBERS = ("startOffset", "stateEpoch", "leaderEpoch", "snapshotEpoch",
                  "createTimestamp", "writeTimestamp")  # fmt: skip
_DELIVERY_STATES = {0: "Available", 2: "Acknowledged", 4: "Archived"}
Delivered = dict[int, tuple[str, int]]


def _share_states(run: str) -> dict[tuple[str, str, int], tuple[dict[str, Any], Delivered]]:
    """Return the numbers of each partition of a group, and state and count of each offset."""
    found: dict[tuple[str, str, int], tuple[dict[str, Any], Delivered]] = {}
    for kind, key, value in _records(run, "__share_group_state"):
        place = key["groupId"], key["topicId"], key["partition"]
        if value is None:
            del found[place]
            continue
        numbers, delivered = ({}, {}) if kind == "0" else found[place]
        numbers |= {name: value[name] for name in _SHARE_NUMBERS if value.get(name, -1) != -1}
        for batch in value["stateBatches"]:
            one = _DELIVERY_STATES[batch["deliveryState"]], batch["deliveryCount"]
            delivered |= dict.fromkeys(range(batch["firstOffset"], batch["lastOffset"] + 1), one)
        start = numbers.get("startOffset", -1)
        left = {offset: one for offset, one in delivered.items() if offset >= start}
        found[place] = numbers, left
    return found


@pytest.mark.parametrize("run", _runs("__share_group_state"))
def test_share_groups(run: str) -> None:
    expected = _share_states(run)
    found = ks.read_share_state(GOLDEN / run / "data")
    assert found.is_exact
    states: dict[tuple[str, str, int], tuple[dict[str, Any], Delivered]] = {}
    for row in found.partitions.rows():
        numbers = {name: row[re.sub("([A-Z])", r"_\1", name).lower()] for name in _SHARE_NUMBERS}
        assert row["topic"] == "shared"
        states[row["group"], row["topic_id"], row["partition"]] = numbers, {}
    for row in found.batches.rows():
        _, delivered = states[row["group"], row["topic_id"], row["partition"]]
        one = row["delivery_state"], row["delivery_count"]
        delivered |= dict.fromkeys(range(row["first_offset"], row["last_offset"] + 1), one)
    assert states == expected
    assert {one for _, delivered in expected.values() for one, _ in delivered.values()} == {
        "Available", "Acknowledged", "Archived",
    }  # fmt: skip


_REMOTE = re.compile(r"^\| offset: .* payload: RemoteLogSegmentMetadata(Update)?\{(.*)\}$")
_REMOTE_PLACE = re.compile(r"topicIdPartition=([\w-]{22}):(.+)-(\d+), id=([\w-]{22})\}")
_REMOTE_FIELD = re.compile(r"(\w+)=(-?\d+|[A-Z_]{5,}|true|false|\{[\d=, ]*\})(?=,|$)")


def _remote_segments(run: str) -> dict[str, dict[str, str]]:
    """Return the printed fields of each segment that is left, by its id."""
    found: dict[str, dict[str, str]] = {}
    for line in _lines(run, "__remote_log_metadata-0"):
        if match := _REMOTE.match(line):
            place = _REMOTE_PLACE.search(match[2])
            assert place
            topic_id, topic, partition, segment_id = place.groups()
            fields = dict(_REMOTE_FIELD.findall(match[2]))
            assert (segment_id in found) == bool(match[1]), "an update follows"
            known = found.get(segment_id, {"topicId": topic_id, "topic": topic, "no": partition})
            found[segment_id] = known | fields
            if fields["state"] == "DELETE_SEGMENT_FINISHED":
                del found[segment_id]
    return found


@pytest.mark.parametrize("run", _runs("__remote_log_metadata"))
def test_remote_segments(run: str) -> None:
    expected = _remote_segments(run)
    assert len(expected) > 5
    found = ks.internal_topics.read_remote_segments(GOLDEN / run / "data")
    assert found.is_exact
    assert {
        row["segment_id"]: {
            "topicId": row["topic_id"], "topic": row["topic"], "no": str(row["partition"]),
            "startOffset": str(row["start_offset"]), "endOffset": str(row["end_offset"]),
            "brokerId": str(row["broker_id"]), "maxTimestampMs": str(row["max_timestamp"]),
            "eventTimestampMs": str(row["event_timestamp"]), "state": row["state"],
            "segmentLeaderEpochs":
                f"{{{', '.join(one.replace(':', '=') for one in row['leader_epochs'])}}}",
            "segmentSizeInBytes": str(row["size"]),
            "txnIdxEmpty": str(not row["has_transactions"]).lower(),
        }
        for row in found.segments.rows()
    } == expected  # fmt: skip
    assert {row["has_transactions"] for row in found.segments.rows()} == {True, False}
    local = ks.open_log_dir(GOLDEN / run / "data" / "tiered-0").partitions[0]
    assert max(found.segments["end_offset"]) + 1 == local.log_segments[0].base_offset


def _metadata_records(run: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for suffix in (".checkpoint", ".log"):
        for line in _lines(run, "__cluster_metadata-0", suffix):
            match = _METADATA.match(line)
            if match and "data" in (record := json.loads(match[1])):
                yield record["type"], record["data"]


@pytest.mark.parametrize("run", [one for one in _runs("__cluster_metadata") if "killed" not in one])
def test_topics_and_features(run: str) -> None:
    topics, features = {}, {}
    for kind, data in _metadata_records(run):
        if kind == "TOPIC_RECORD":
            topics[data["topicId"]] = data["name"]
        elif kind == "REMOVE_TOPIC_RECORD":
            topics.pop(data["topicId"], None)
        elif kind == "FEATURE_LEVEL_RECORD":
            features[data["name"]] = data["featureLevel"]
    found = ks.read_metadata(GOLDEN / run / "data")
    assert found.is_exact
    assert {row["topic_id"]: row["topic"] for row in found["topics"].rows()} == topics
    assert {row["feature"]: row["level"] for row in found["features"].rows()} == features
    assert topics
    assert features


def test_each_line_of_kafka_has_its_files() -> None:
    versions = {Path(run).name.split("-")[1][:3] for run in _runs("__consumer_offsets")}
    assert versions == {"2.8", "3.9", "4.1", "4.4"}
