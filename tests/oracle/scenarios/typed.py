"""Topics whose values Confluent's serializers wrote, and the topic of their schemas."""

from __future__ import annotations

from confluent_kafka.schema_registry import RegisteredSchema

from tests.oracle.clients import Message
from tests.oracle.stage import T0, Stage, scenario
from tests.support.internal_topics import KeyValue
from tests.support.schema_topics import NOOP, schema
from tests.support.typed_topics import registry_client, typed_values


@scenario(
    topics=["_schemas", "orders", "payments", "events"],
    writers=["librdkafka"],
    promises={
        "values of all topics": lambda e: (
            {batch["file"].parent.name for batch in e.batches}
            >= {"_schemas-0", "orders-0", "payments-0", "events-0"}
        ),
        "values that a header names the schema of": lambda e: any(
            "headerKeys: [__value_schema_id" in one for one in e.record_texts()
        ),
    },
)
def typed_topics(stage: Stage) -> None:
    """Values of Avro, Protobuf and JSON Schema over several versions."""
    client = registry_client()
    values = list(typed_values(client))
    for topic in ("orders", "payments", "events"):
        stage.create_topic(topic)
    stage.create_topic("_schemas", cleanup_policy="compact")
    writer = stage.librdkafka_producer(compression_type="zstd")
    for topic in ("orders", "payments", "events"):
        writer.write(
            [
                Message(topic, one.value, b"k%d" % number, T0 + number, one.headers)
                for number, one in enumerate(values)
                if one.topic == topic
            ]
        )
    registered = [
        client.get_version(subject, version)
        for subject in client.get_subjects()
        for version in client.get_versions(subject)
    ]
    records = [NOOP, *map(_record_of, sorted(registered, key=lambda one: one.schema_id))]
    writer.write(
        [
            Message("_schemas", value, key, T0 + number)
            for number, (key, value) in enumerate(records)
        ]
    )
    writer.close()


def _record_of(one: RegisteredSchema) -> KeyValue:
    """Return the record that a registry writes of a version."""
    more = {"guid": one.guid}
    if one.schema.schema_type != "AVRO":
        more["schemaType"] = one.schema.schema_type
    if one.schema.references:
        more["references"] = [
            {"name": it.name, "subject": it.subject, "version": it.version}
            for it in one.schema.references
        ]
    return schema(one.subject, one.version, one.schema_id, one.schema.schema_str, **more)
