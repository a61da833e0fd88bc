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

_RECORD = re.compile(r"^\| offset: .* headerKeys: \[\] key: (\{.*?\}) payload: (\{.*\}|<null>)$")
_METADATA = re.compile(r"^\| offset: .* payload: (\{.*\})$")
_OFFSET_KEYS = ("0", "1")
_STATUSES = {0: "Empty", 1: "Ongoing", 4: "CompleteCommit", 5: "CompleteAbort"}


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
            yield key["type"], key["data"], None if value == "<null>" else json.loads(value)["data"]


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
            value["producerId"], value["producerEpoch"], _STATUSES[value["transactionStatus"]],
            value["transactionStartTimestampMs"],
        )
        for name, value in expected.items()
    }  # fmt: skip


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
