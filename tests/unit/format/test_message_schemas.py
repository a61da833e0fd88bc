"""Messages of Kafka's own topics: bytes that brokers wrote, and what the schemas hold of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkascan.format.schemas.log_messages import COORDINATOR_RECORDS, REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_decoder import (
    MessageSchema,
    SchemaError,
    decode,
    decode_prefix,
)
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.message_files import parse_messages
from kafkascan.format.schemas.message_json import jackson_text, json_of
from tests.support.message_schemas import SCHEMAS
from tests.support.random_messages import random_message


def printed(schema: MessageSchema, data: bytes, version: int) -> str:
    return jackson_text(json_of(schema, decode(schema, data, version), version))


def test_an_offset_commit_of_a_broker() -> None:
    data = bytes.fromhex(
        "00000000000001f5" "00000000" "01" "000001a202744469" "01" "00" "10"
        "88f0ca17159d42c787299b03ed7cb405"
    )  # fmt: skip
    assert printed(SCHEMAS["OffsetCommitValue"], data, 4) == (
        '{"offset":501,"leaderEpoch":0,"metadata":"","commitTimestamp":1795337503849,'
        '"topicId":"iPDKFxWdQseHKZsD7Xy0BQ"}'
    )


def test_a_tiered_segment_of_a_broker() -> None:
    data = bytes.fromhex(
        "0b7469657265642e742d31" "88f0ca17159d42c787299b03ed7cb405" "00000000" "00"
        "861a36e361dd47fbbad7cdf6e761e3e8" "00" "0000000000000000" "00000000000004fc"
        "00000001" "000001a202708b90" "000001a202708dc1" "02" "00000000" "0000000000000000" "00"
        "000fded3" "00" "00" "00"
    )  # fmt: skip
    message, size, _ = decode_prefix(REMOTE_LOG_RECORDS[0], data, 0)
    assert size == len(data)
    assert message["remote_log_segment_id"]["topic_id_partition"]["name"] == "tiered.t-1"
    assert (message["end_offset"], message["segment_size_in_bytes"]) == (1276, 1040083)
    assert message["segment_leader_epochs"] == [{"leader_epoch": 0, "offset": 0}]


def test_a_null_that_is_not_the_default_is_printed() -> None:
    schema = SCHEMAS["ConsumerGroupMemberMetadataValue"]
    absent = random_message(schema, 0, random.Random(1)) | {
        "classic_member_metadata": {"session_timeout_ms": 0, "supported_protocols": []}
    }
    null = absent | {"classic_member_metadata": None}
    # No tagged fields; and one, with number 0 and one byte, which is no structure.
    assert encode(schema, null, 0) == encode(schema, absent, 0)[:-1] + bytes([1, 0, 1, 0])
    assert "classicMemberMetadata" not in printed(schema, encode(schema, absent, 0), 0)
    assert '"classicMemberMetadata":null' in printed(schema, encode(schema, null, 0), 0)


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_is_read(name: str) -> None:
    schema, choice = SCHEMAS[name], random.Random(name)
    for version in range(schema.newest + 1):
        message = random_message(schema, version, choice)
        data = encode(schema, message, version)
        assert decode_prefix(schema, data, version) == (message, len(data), ())
        for size in choice.sample(range(len(data)), k=min(20, len(data))):
            with pytest.raises(SchemaError):
                decode(schema, data[:size], version)


def test_text_of_json() -> None:
    text = jackson_text({"a": ['"\\/\n\x00\x1f\x7fä𝄞', 1.0, 1e7, 1e-4, 12.5, None, True, 3]})
    numbers = "1.0,1.0E7,1.0E-4,12.5,null,true,3"
    assert text == '{"a":["\\"\\\\/\\n\\u0000\\u001F\x7fä𝄞",' + numbers + "]}"


def test_types_of_records_are_those_of_kafka() -> None:
    records = COORDINATOR_RECORDS["__consumer_offsets"]
    assert {code: key.name for code, (key, _) in records.items()}[1] == "OffsetCommitKey"


# The tags in Kafka's message definitions, in their order from 0 on.
TAGS = {
    "OffsetCommitValue": "topic_id",
    "ConsumerGroupMetadataValue": "metadata_hash",
    "ConsumerGroupMemberMetadataValue": "classic_member_metadata",
    "ConsumerGroupTargetAssignmentMetadataValue": "assignment_timestamp",
    "ShareGroupTargetAssignmentMetadataValue": "assignment_timestamp",
    "StreamsGroupMetadataValue": "validated_topology_epoch last_assignment_configs"
    " stored_description_topology_epoch failed_description_topology_epoch",
    "StreamsGroupTargetAssignmentMetadataValue": "assignment_timestamp",
    "TransactionLogValue": "previous_producer_id next_producer_id client_transaction_version"
    " next_producer_epoch",
    "ShareSnapshotValue": "delivery_complete_count",
    "ShareUpdateValue": "delivery_complete_count",
    "RegisterBrokerRecord": "log_dirs cordoned_log_dirs",
    "PartitionRecord": "leader_recovery_state eligible_leader_replicas last_known_elr",
    "PartitionChangeRecord": "isr leader replicas removing_replicas adding_replicas"
    " leader_recovery_state eligible_leader_replicas last_known_elr directories",
    "BrokerRegistrationChangeRecord": "fenced in_controlled_shutdown log_dirs cordoned_log_dirs",
    "BeginTransactionRecord": "name",
    "AbortTransactionRecord": "reason",
    "RemoteLogSegmentMetadataRecord": "txn_index_empty",
    "RemoteLogSegmentMetadataSnapshotRecord": "txn_index_empty",
}


def test_tags_are_those_of_kafka() -> None:
    found = {
        name: {one.tag: one.name for one in schema.fields if one.tag is not None}
        for name, schema in SCHEMAS.items()
    }
    assert {name: tags for name, tags in found.items() if tags} == {
        name: dict(enumerate(names.split())) for name, names in TAGS.items()
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A  1  0  -\n\n  # a field\n    a  int3", "line 4: 'int3' is no type"),
        ("A  1  0  -\n    a  []B\n    b  int8", r"line 2: 'B' is no type, and has no fields"),
        ("A  1  0  -\n  a  int8", "line 2: 2 blanks precede a, not 0"),
        ("A  1  0  -\n    a  B\n            b  int8", "line 3: 12 blanks precede b, not 8"),
        ("A  1  0  -\n    a  int8  0  -  -  -  -", "line 2: 6 columns are expected, not 7"),
        ("A  1  0  -\n    a  int8  0+  0-1", r"line 2: .* 0-1 do not end with a plus"),
        ("A  1  0  -\n    a  int8  0+  -  -  x", "line 2: .*'x'"),
        ("A  1  0", "line 1: "),
    ],
)
def test_a_wrong_line_of_a_file_of_messages_is_named(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "a.messages"
    file.write_text(text)
    with pytest.raises(ValueError, match=rf"a\.messages, {problem}"):
        parse_messages(file)
