"""A schema registry's topic, and records that name their schemas."""

from __future__ import annotations

import struct

from tests.oracle.clients import Message
from tests.oracle.jvm import wait_until
from tests.oracle.stage import T0, Stage, scenario
from tests.support.internal_topics import KeyValue
from tests.support.schema_topics import (
    AVRO,
    AVRO_2,
    JSON_SCHEMA,
    MONEY,
    NOOP,
    PROTO,
    compact,
    delete_subject,
    schema,
    schema_key,
    setting,
)

GUID = "0a0b0c0d-0000-4000-8000-000000000001"

_MONEY = [{"name": "money.proto", "subject": "money", "version": 1}]
_RULES = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE"}]}
_CONTEXT = {"tenant": "default", "context": ".staging"}

# A registry's life, as Confluent's writes it; the two last ones of `b` are Redpanda's.
RECORDS: tuple[KeyValue, ...] = (
    NOOP,
    setting("CONFIG", None, {"subject": "", "compatibilityLevel": "BACKWARD"}),
    schema("orders-value", 1, 1, AVRO),
    schema("orders-value", 2, 2, AVRO_2, ruleSet=_RULES),
    schema("orders-key", 1, 3, '"string"', guid=GUID),
    schema("money", 1, 4, MONEY, schemaType="PROTOBUF"),
    schema("bills-value", 1, 5, PROTO, schemaType="PROTOBUF", references=_MONEY),
    schema("events-value", 1, 6, JSON_SCHEMA, schemaType="JSON"),
    (compact({"keytype": "CONTEXT", **_CONTEXT}), compact(_CONTEXT)),
    schema(":.staging:orders-value", 1, 1, '"long"'),
    setting("CONFIG", "orders-value", {"compatibilityLevel": "FORWARD"}),
    setting("CONFIG", "orders-value", {"compatibilityLevel": "FULL_TRANSITIVE"}),
    setting("MODE", ":.staging:", {"mode": "READONLY"}),
    # An id that has another text: refused.
    schema("events-value", 2, 1, '"int"'),
    # Soft-deleted, and then for good.
    schema("gone-value", 1, 7, '"float"'),
    delete_subject("gone-value", 1),
    schema("gone-value", 1, 7, '"float"', deleted=True),
    (schema_key("gone-value", 1), None),
    # Two soft-deleted versions, the second of which is registered again.
    schema("back-value", 1, 8, '"bytes"'),
    schema("back-value", 2, 9, '"double"'),
    delete_subject("back-value", 2),
    schema("back-value", 3, 9, '"double"'),
    (schema_key("back-value", 2), None),
    # A subject that is cleared of its deleted version.
    schema("clear-value", 1, 10, '"null"'),
    schema("clear-value", 2, 11, '"boolean"'),
    schema("clear-value", 1, 10, '"null"', deleted=True),
    setting("CLEAR_SUBJECT", "clear-value", {"subject": "clear-value"}),
    setting("CONFIG", "money", {"compatibilityLevel": "NONE"}),
    setting("CONFIG", "money", None),
    # Redpanda's keys have the offset that they expect: the second writer was too late.
    (schema_key("panda-value", 1, seq=29, node=2), schema("panda-value", 1, 12, '"a"')[1]),
    (schema_key("panda-value", 2, seq=29, node=1), schema("panda-value", 2, 12, '"a"')[1]),
)

VALUES: tuple[bytes | None, ...] = (
    *(b"\0" + struct.pack(">i", number) + b"\x0e" for number in (1, 1, 2, 1, 2)),
    None,
    b"{}",
    b"\0" + struct.pack(">i", 99) + b"\x0e",
)
"""Of the topic ``orders``: two versions, a null, no prefix and an unknown id."""


@scenario(
    topics=["_schemas"],
    promises={
        "a compacted log": lambda e: any(
            later["baseOffset"] > earlier["nextOffset"]
            for earlier, later in zip(e.batches, e.batches[1:], strict=False)
        ),
        "records of all kinds": lambda e: (
            {
                kind
                for kind in ("SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT",
                             "CONTEXT", "NOOP")
                if any(f'"keytype":"{kind}"' in text for text in e.record_texts())
            }
            >= {"SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "NOOP"}
        ),
    },
)  # fmt: skip
def registry(stage: Stage) -> None:
    """The topic of a schema registry with records of each kind, after the cleaner ran."""
    stage.create_topic(
        "_schemas", cleanup_policy="compact", min_cleanable_dirty_ratio="0.001",
        segment_ms=str(2**62), file_delete_delay_ms="0", delete_retention_ms="86400000000",
    )  # fmt: skip
    writer = stage.java_producer()
    for number, (key, value) in enumerate(RECORDS):
        writer.write([Message("_schemas", value, key, timestamp=T0 + number)])
    # The segment rolls by the time in the records; the last segment is never cleaned.
    stage.alter_topic("_schemas", segment_ms="10000")
    key, _ = NOOP
    writer.write([Message("_schemas", b"", key, timestamp=T0 + 20_000)])
    writer.close()
    wait_until("the cleaner", lambda: stage.cleaned_up_to("_schemas") > 0)


@scenario(
    topics=["orders"],
    promises={
        "two producers with ids": lambda e: len(e.values("producerId")) == 2,
        "a record with a header": lambda e: any("headerKeys: [__" in one for one in
                                                e.record_texts()),
    },
)  # fmt: skip
def framed_records(stage: Stage) -> None:
    """Records whose prefixes and headers name schemas."""
    stage.create_topic("orders")
    first = stage.java_producer(enable_idempotence="true")
    second = stage.java_producer(enable_idempotence="true")
    messages = [
        Message("orders", value, b"k%d" % number, timestamp=T0 + number)
        for number, value in enumerate(VALUES)
    ]
    first.write(messages[:3])
    second.write(messages[3:])
    guid = b"\1" + bytes.fromhex(GUID.replace("-", ""))
    headers = (("__value_schema_id", guid),)
    first.write([Message("orders", b"\x02a", b"k8", timestamp=T0 + 8, headers=headers)])
    first.close()
    second.close()
