"""Records of Kafka's own topics in columns are those of the decoder for one record."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.schemas.metadata_messages import METADATA_RECORDS
from kafkascan.internal_topics.message_columns import (
    decode_coordinator_columns,
    decode_framed_columns,
)
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    UnknownRecordTypeError,
    decode_coordinator_record,
    decode_framed_message,
)
from tests.support.message_columns import as_arrow, rows_of
from tests.support.paths import GOLDEN

_COLUMNS = ["offset", "key", "value"]


def _logs(topic: str) -> list[Path]:
    found = sorted(
        path
        for path in GOLDEN.glob(f"kafka-*/data/{topic}-*/*")
        if path.suffix in (".log", ".checkpoint")
    )
    assert found
    return found


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_golden_coordinator_topics(topic: str) -> None:
    schemas = COORDINATOR_RECORDS[topic]
    rows = 0
    for log in _logs(topic):
        records = ks.read_records(log, columns=_COLUMNS)
        decoded = decode_coordinator_columns(schemas, records)
        assert decoded.errors == {}
        found = rows_of(decoded)
        for row, record in enumerate(records):
            key, value = decode_coordinator_record(schemas, record.key or b"", record.value)
            version = -1 if value is None else value.version
            expected = as_arrow(key.fields), as_arrow(value and value.fields), version
            assert found.pop(row) == (key.type, expected)
            rows += 1
        assert found == {}
    assert rows > 3


def test_golden_metadata() -> None:
    types = set()
    for log in _logs("__cluster_metadata"):
        records = ks.read_records(log, columns=_COLUMNS)
        decoded = decode_framed_columns(METADATA_RECORDS, records)
        assert decoded.errors == {}
        found = rows_of(decoded)
        assert len(found) == len(records)
        for row, record in enumerate(records):
            message = decode_framed_message(METADATA_RECORDS, record.value or b"")
            expected = None, as_arrow(message.fields), message.version
            assert found[row] == (message.type, expected)
            types.add(message.type)
    assert len(types) >= 8


def test_unknown_types_and_damage_are_errors() -> None:
    keys = [b"\x00\x63", b"\x00\x01", b"\x00\x02\x00\x01g", b"\x00\x02\x00\x05g", None]
    log = ks.build_batches(key=keys, value=[b"", b"", None, None, None])
    records = ks.read_records(log)
    decoded = decode_coordinator_columns(COORDINATOR_RECORDS["__consumer_offsets"], records)
    assert rows_of(decoded) == {2: (2, ({"group": "g"}, None, -1))}
    assert sorted(decoded.errors) == [0, 1, 3, 4]
    assert isinstance(decoded.errors[0], UnknownRecordTypeError)
    assert decoded.errors[0].code == 99
    assert "group needs" in str(decoded.errors[3])
