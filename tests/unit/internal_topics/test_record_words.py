"""Records of Kafka's own topics as plain objects: what a later version added is named."""

from __future__ import annotations

from kafkascan.internal_topics.record_words import describe_record
from tests.support.internal_topics import commit
from tests.unit.internal_topics.test_remote_segments import ADDED

_TOPIC = "__remote_log_metadata"


def test_unknown_tagged_fields() -> None:
    key, value = commit("a", 0, 5)
    assert value is not None
    _, before = describe_record("__consumer_offsets", key, value)
    assert before is not None
    assert "unknownTags" not in before
    count = value[-1]  # of tagged fields: none
    assert count == 0
    _, after = describe_record("__consumer_offsets", key, value[:-1] + b"\x01\x07\x02ab")
    tag = {"structure": "OffsetCommitValue", "tag": 7, "bytes": "YWI="}
    assert after == before | {"unknownTags": [tag]}


def test_keys_whose_layout_is_not_known() -> None:
    without, value = describe_record(_TOPIC, None, ADDED)
    assert without is None
    assert describe_record(_TOPIC, b"ab", ADDED) == ({"bytes": "YWI="}, value)
    assert describe_record(_TOPIC, b"ab", None) == ({"bytes": "YWI="}, None)
