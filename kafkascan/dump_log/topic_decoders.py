"""Records of Kafka's own topics as text, as ``DumpLogSegments`` prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kafkascan.dump_log.dump_options import RecordDecoder, RecordText, UndecodableRecordError
from kafkascan.format.file_names import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafkascan.format.schemas.log_messages import (
    ASSIGNMENT,
    METADATA_RECORDS,
    REMOTE_LOG_RECORDS,
    SUBSCRIPTION,
    CoordinatorSchemas,
)
from kafkascan.format.schemas.message_decoder import MessageSchema, SchemaError, decode
from kafkascan.format.schemas.message_json import jackson_text, json_of, uuid_text
from kafkascan.internal_topics.remote_segments import PARTITION_STATES, SEGMENT_STATES
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    Message,
    UnknownRecordTypeError,
    decode_coordinator_record,
    decode_framed_message,
)
from kafkascan.internal_topics.transaction_states import TRANSACTION_STATUSES

# ---- topics of coordinators ------------------------------------------------------------------


def _coordinator_decoder(topic: str) -> RecordDecoder:
    schemas = COORDINATOR_RECORDS[topic]

    def text(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        if key is None:
            raise UndecodableRecordError(f"the record at offset {offset} has no key")
        try:
            return _coordinator_text(schemas, key, value)
        except UnknownRecordTypeError as error:
            skipped = f"Unknown record type {error.code} at offset {offset}, skipping."
            return RecordText(skipped, None)
        except SchemaError as error:
            return RecordText(f"Error at offset {offset}, skipping. {error}", None)

    return text


def _coordinator_text(schemas: CoordinatorSchemas, key: bytes, value: bytes | None) -> RecordText:
    found, message = decode_coordinator_record(schemas, key, value)
    names = {"type": str(found.type), "data": json_of(found.schema, found.fields, found.version)}
    if message is None:
        return RecordText(jackson_text(names), "<DELETE>")
    values = {"version": str(message.version), "data": _coordinator_json(message)}
    return RecordText(jackson_text(names), jackson_text(values))


def _coordinator_json(message: Message) -> dict[str, Any]:
    found = json_of(message.schema, message.fields, message.version)
    if message.fields.get("protocol_type") == "consumer":
        for printed, member in zip(found["members"], message.fields["members"], strict=True):
            _decode_protocol(printed, "subscription", SUBSCRIPTION, member)
            _decode_protocol(printed, "assignment", ASSIGNMENT, member)
    if message.schema.name == "TransactionLogValue":
        status = message.fields["transaction_status"]
        found["transactionStatus"] = TRANSACTION_STATUSES.get(status, str(status))
    return found


def _decode_protocol(
    printed: dict[str, Any], name: str, schema: MessageSchema, member: dict[str, Any]
) -> None:
    """Print what a member subscribed or was assigned, instead of its bytes, if it is readable."""
    data = member[name]
    try:
        version = int.from_bytes(data[:2], "big", signed=True)
        printed[name] = json_of(schema, decode(schema, data[2:], version), version)
    except SchemaError:
        return


# ---- logs of metadata ------------------------------------------------------------------------


def _metadata_text(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
    try:
        message = decode_framed_message(METADATA_RECORDS, value or b"")
    except SchemaError as error:
        return RecordText(None, f"Error at {offset}, skipping. {error}")
    found = {
        "type": _upper_snake_case(message.schema.name),
        "version": message.version,
        "data": json_of(message.schema, message.fields, message.version),
    }
    return RecordText(None, jackson_text(found))


def _upper_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _remote_log_text(offset: int, key: bytes | None, value: bytes | None) -> RecordText:
    try:
        message = decode_framed_message(REMOTE_LOG_RECORDS, value or b"")
        text = _REMOTE_LOG_TEXTS[message.schema.name](message.fields)
    except (SchemaError, LookupError) as error:
        return RecordText(None, f"Error at offset {offset}, skipping. {error}")
    return RecordText(None, text)


def _segment_text(fields: dict[str, Any]) -> str:
    epochs = ", ".join(
        f"{one['leader_epoch']}={one['offset']}"
        for one in sorted(fields["segment_leader_epochs"], key=lambda one: one["leader_epoch"])
    )
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields)}, "
        f"startOffset={fields['start_offset']}, endOffset={fields['end_offset']}, "
        f"brokerId={fields['broker_id']}, maxTimestampMs={fields['max_timestamp_ms']}, "
        f"eventTimestampMs={fields['event_timestamp_ms']}, segmentLeaderEpochs={{{epochs}}}, "
        f"segmentSizeInBytes={fields['segment_size_in_bytes']}, "
        f"customMetadata={_custom_metadata(fields)}, "
        f"state={SEGMENT_STATES[fields['remote_log_segment_state']]}, "
        f"txnIdxEmpty={str(fields['txn_index_empty']).lower()}}}"
    )


def _segment_update_text(fields: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields)}, "
        f"customMetadata={_custom_metadata(fields)}, "
        f"state={SEGMENT_STATES[fields['remote_log_segment_state']]}, "
        f"eventTimestampMs={fields['event_timestamp_ms']}, brokerId={fields['broker_id']}}}"
    )


def _partition_delete_text(fields: dict[str, Any]) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields)}, "
        f"state={PARTITION_STATES[fields['remote_partition_delete_state']]}, "
        f"eventTimestampMs={fields['event_timestamp_ms']}, brokerId={fields['broker_id']}}}"
    )


def _segment_id(fields: dict[str, Any]) -> str:
    found = fields["remote_log_segment_id"]
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_partition(found)}, id={uuid_text(found['id'])}}}"
    )


def _partition(fields: dict[str, Any]) -> str:
    found = fields["topic_id_partition"]
    return f"{uuid_text(found['id'])}:{found['name']}-{found['partition']}"


def _custom_metadata(fields: dict[str, Any]) -> str:
    data = fields["custom_metadata"]
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


_REMOTE_LOG_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "RemoteLogSegmentMetadataRecord": _segment_text,
    "RemoteLogSegmentMetadataUpdateRecord": _segment_update_text,
    "RemotePartitionDeleteMetadataRecord": _partition_delete_text,
}

TOPIC_DECODERS: dict[str, RecordDecoder] = {
    "offsets-decoder": _coordinator_decoder(GROUPS_TOPIC),
    "transaction-log-decoder": _coordinator_decoder(TRANSACTIONS_TOPIC),
    "cluster-metadata-decoder": _metadata_text,
    "remote-log-metadata-decoder": _remote_log_text,
    "share-group-state-decoder": _coordinator_decoder(SHARE_TOPIC),
}
"""Decoders of Kafka's own topics by `TOPIC_OPTIONS`."""
