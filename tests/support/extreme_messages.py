"""Messages of Kafka's own topics with extreme numbers, in data directories."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kafkascan as ks
from kafkascan.format.schemas.log_messages import METADATA_RECORDS, REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_decoder import (
    Array,
    MessageSchema,
    SchemaError,
    Type,
    read_message_frame,
)
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    Message,
    decode_coordinator_record,
    decode_framed_message,
)
from tests.support.extremes import Case, extremes_of
from tests.support.files import contents
from tests.support.internal_topics import KeyValue, TopicLog
from tests.support.random_messages import random_message
from tests.support.state_dirs import write_state

_FRAMED = {"__cluster_metadata": METADATA_RECORDS, "__remote_log_metadata": REMOTE_LOG_RECORDS}
_NUMBERS = {
    **{f"int{bits}": extremes_of(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [0, 1, 2**bits - 2, 2**bits - 1] for bits in (16, 32)},
}
_LARGEST_LOG = 150
"""Records with extreme numbers in a log."""
_PAIRS, _RANDOM_ONES = 150, 5
"""Records of a topic in which two numbers are changed, and random records of each type."""

Named = tuple[str, KeyValue]


def message_cases(folder: Path) -> Iterator[Case]:
    """
    Yield data directories in which the log of one topic has records with extreme numbers.

    Each number of a record of `write_state` has each value alone; then come records in which two
    numbers are changed, and random records of each type.
    """
    write_state(folder)
    base = contents(folder)
    for partition in sorted(folder.glob("__*")):
        topic = partition.name.rpartition("-")[0]
        dice = random.Random(topic)
        table = ks.read_records(partition, columns=["key", "value"]).to_arrow()
        usual = [(one["key"], one["value"]) for one in table.to_pylist()]
        odd = [one for record in usual for one in _odd_records(topic, record)]
        for name, record in dice.choices(odd, k=_PAIRS):
            other, both = dice.choice(list(_odd_records(topic, record)))
            odd.append((f"{name}, {other}", both))
        odd += [one for _ in range(_RANDOM_ONES) for one in _random_records(topic, dice)]
        for first in range(0, len(odd), _LARGEST_LOG):
            some = odd[first : first + _LARGEST_LOG]
            log = TopicLog(partition).add(*usual, *(record for _, record in some), *usual)
            path = f"{partition.name}/{0:020}.log"
            named = f"{topic}: {some[0][0]}, to {some[-1][0]}"
            yield Case(named, {**base, path: b"".join(log.batches)})


def _odd_records(topic: str, record: KeyValue) -> Iterator[Named]:
    """Yield a record with each of its numbers at each extreme."""
    key, value = record
    try:
        if topic in _FRAMED:
            assert value is not None
            message = decode_framed_message(_FRAMED[topic], value)
            frame = value[: read_message_frame(value).size]
            for name, data in _odd_messages(message):
                yield name, (key, frame + data)
            return
        assert key is not None
        of_key, of_value = decode_coordinator_record(COORDINATOR_RECORDS[topic], key, value)
    except SchemaError:
        return
    for name, data in _odd_messages(of_key):
        yield name, (key[:2] + data, value)
    if of_value is not None and value is not None:
        for name, data in _odd_messages(of_value):
            yield name, (key, value[:2] + data)


def _odd_messages(message: Message) -> Iterator[tuple[str, bytes]]:
    schema, version = message.schema, message.version
    for name, fields in _odd_structures(schema, version, message.fields):
        yield f"{schema.name}.{name}", encode(schema, fields, version)


def _odd_structures(
    schema: MessageSchema, version: int, fields: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in schema.fields:
        if field.is_in(version):
            for name, value in _odd_values(field.type, version, fields[field.name]):
                yield f"{field.name}{name}", {**fields, field.name: value}


def _odd_values(kind: Type, version: int, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value with each of its numbers at each extreme; of an array, in the first element."""
    if isinstance(kind, str):
        yield from ((f" = {number}", number) for number in _NUMBERS.get(kind, ()))
    elif isinstance(kind, Array):
        if value:
            for name, first in _odd_values(kind.element, version, value[0]):
                yield f"[0]{name}", [first, *value[1:]]
    elif value is not None:
        for name, fields in _odd_structures(kind, version, value):
            yield f".{name}", fields


def _random_records(topic: str, dice: random.Random) -> Iterator[Named]:
    """Yield a random record of each type; its numbers are extremes now and then."""
    if topic in _FRAMED:
        for code, schema in _FRAMED[topic].items():
            version = dice.randint(0, schema.newest)
            data = encode(schema, random_message(schema, version, dice), version)
            yield f"random {schema.name}", (None, bytes([1, code & 127, version]) + data)
        return
    for code, (of_key, schema) in COORDINATOR_RECORDS[topic].items():
        version = dice.randint(0, schema.newest)
        key = struct.pack(">h", code) + encode(of_key, random_message(of_key, 0, dice), 0)
        data = encode(schema, random_message(schema, version, dice), version)
        yield f"random {schema.name}", (key, struct.pack(">h", version) + data)
