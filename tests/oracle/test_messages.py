"""Schemas of messages against those in Kafka's jars, and messages against Kafka's classes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from kafkascan.format.schemas.message_decoder import decode_prefix
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.message_json import jackson_text, json_of
from tests.oracle.build import ClassPaths, package
from tests.oracle.jvm import java_command
from tests.oracle.message_layouts import (
    declared_layout,
    declared_messages,
    declared_versions,
    known_layout,
    tagged_names,
    without_tagged,
)
from tests.support.message_schemas import SCHEMAS, TYPES
from tests.support.random_messages import random_message

pytestmark = pytest.mark.oracle

_PROJECT = Path(__file__).with_name("java-schemas")
_KAFKAS = ("2.8.2", "3.3.2", "3.7.2", "3.9.1", "4.1.1", "4.4.0")
_OLDEST, _NEWEST = _KAFKAS[0], _KAFKAS[-1]

# Messages whose version 0 had other fields while their feature was a preview. Kafka itself reads
# them with its newer classes, which fail or read something else.
_PREVIEWS = {
    # KRaft, until 3.3.
    "2.8.2": {"LeaderChangeMessage"},
    "3.3.2": {"UserScramCredentialRecord", "DelegationTokenRecord",
              # Tiered storage, until 3.6.
              "RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord",
              "RemoteLogSegmentMetadataSnapshotRecord"},
    "3.7.2": {
        # The new consumer groups (KIP-848), until 3.8.
        "ConsumerGroupMemberMetadataValue", "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupTargetAssignmentMemberValue", "ConsumerGroupCurrentMemberAssignmentValue",
        # Eligible leader replicas (KIP-966), until 4.0.
        "PartitionRecord", "PartitionChangeRecord",
    },
    # Share groups (KIP-932), until 4.1.
    "3.9.1": {"ShareGroupMetadataValue"},
}  # fmt: skip
# Kinds of messages that logs do not contain, or that are read by other code.
_OTHER_KINDS = {"request", "response", "header"}
_OTHER_MESSAGES = {
    "AbortedTxn", "ControlRecordTypeSchema", "DefaultPrincipalData", "ProducerSnapshot",
    "QuorumStateData", "EndTxnMarker",
}  # fmt: skip


@pytest.fixture(scope="module")
def jars() -> Path:
    package(_PROJECT)
    return _PROJECT / "target"


@pytest.mark.parametrize("kafka", _KAFKAS)
def test_layouts(jars: Path, kafka: str) -> None:
    declared = declared_messages(jars / kafka)
    compared = 0
    for name in (declared.keys() & SCHEMAS.keys()) - _PREVIEWS.get(kafka, set()):
        # KRaft of 2.8 was a preview: its log had another encoding.
        if kafka == _OLDEST and declared[name]["type"] == "metadata":
            continue
        for version in declared_versions(declared[name]):
            theirs = declared_layout(declared[name], version)
            ours = without_tagged(known_layout(SCHEMAS[name], version), tagged_names(theirs))
            assert ours == theirs, (name, version)
            compared += 1
    assert compared >= 15


@pytest.mark.parametrize("kafka", _PREVIEWS)
def test_previews_differ(jars: Path, kafka: str) -> None:
    declared = declared_messages(jars / kafka)
    for name in _PREVIEWS[kafka]:
        versions = declared_versions(declared[name])
        assert any(
            declared_layout(declared[name], one) != known_layout(SCHEMAS[name], one)
            for one in versions
        ), name


def test_all_messages_are_known(jars: Path) -> None:
    declared = {
        name: message
        for name, message in declared_messages(jars / _NEWEST).items()
        if message.get("type") not in _OTHER_KINDS
    }
    assert declared.keys() - _OTHER_MESSAGES == SCHEMAS.keys()
    for name, schema in SCHEMAS.items():
        assert declared_versions(declared[name])[-1] == schema.newest, name
        assert known_layout(schema, schema.newest) == declared_layout(declared[name], schema.newest)
        assert declared[name].get("apiKey", TYPES.get(name)) == TYPES.get(name), name


def test_random_messages(class_paths: ClassPaths) -> None:
    choice = random.Random(11)
    questions, ours = [], []
    for schema in SCHEMAS.values():
        for version in range(schema.newest + 1):
            for _ in range(12):
                message = random_message(schema, version, choice)
                data = encode(schema, message, version)
                assert decode_prefix(schema, data, version) == (message, len(data), ())
                questions.append(f"{schema.name} {version} {data.hex()}")
                text = jackson_text(json_of(schema, message, version))
                ours.append(f"{text}\t{data.hex()}\t0")
    answers = subprocess.run(
        java_command(class_paths.broker, "kafkascan.oracle.Messages"),
        input="\n".join(questions), capture_output=True, text=True, check=True,
    ).stdout.split("\n")[:-1]  # fmt: skip
    assert len(answers) == len(questions) > 1000
    for question, mine, theirs in zip(questions, ours, answers, strict=True):
        assert mine == theirs, question
