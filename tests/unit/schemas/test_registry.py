"""The state of a schema registry, replayed from its topic."""

from __future__ import annotations

import datetime
import json
import pickle
import time
import uuid
from pathlib import Path

import pytest

from kafkascan import build_batches, read_records
from kafkascan.schemas import FrameReader, Registry, open_registry
from kafkascan.schemas.registry import SchemaError, SchemaReference, context_of
from tests.support.internal_topics import KeyValue, TopicLog
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
from tests.support.segments import T0

# Of the text in `test_a_guid_is_…`, in a test of Confluent's registry, as Java's bytes.
_PINNED_MD5 = (29, 32, -53, -71, -27, -29, 94, -105, 84, -25, -38, 23, 11, 110, 93, -37)


@pytest.fixture
def topic(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "_schemas-0")


def replayed(topic: TopicLog, *records: KeyValue) -> Registry:
    return open_registry(topic.add(*records).write().parent)


def listed(registry: Registry) -> list[tuple[str, int, int, bool]]:
    return [(one.subject, one.version, one.schema.id, one.is_deleted) for one in registry]


def test_versions(topic: TopicLog) -> None:
    money = [{"name": "money.proto", "subject": "money", "version": 1}]
    found = replayed(
        topic,
        NOOP,
        schema("orders-value", 1, 1, AVRO),
        schema("orders-value", 2, 2, AVRO_2),
        schema("money", 1, 3, MONEY, schemaType="PROTOBUF"),
        schema("bills-value", 1, 4, PROTO, schemaType="PROTOBUF", references=money),
        schema("events-value", 1, 5, JSON_SCHEMA, schemaType="JSON"),
        schema("copies-value", 1, 1, AVRO),
    )
    assert found.subjects == ["bills-value", "copies-value", "events-value", "money",
                              "orders-value"]  # fmt: skip
    assert [one.version for one in found.versions("orders-value")] == [1, 2]
    assert found.versions("none") == []
    first = found.schema(1)
    assert first is not None
    assert (first.context, first.id, first.schema_type) == ("", 1, "AVRO")
    assert (first.text, first.references) == (AVRO, ())
    assert [one.subject for one in found.users_of(first)] == ["copies-value", "orders-value"]
    newest = found.newest("orders-value")
    assert newest is not None
    assert newest.text == AVRO_2
    assert found.newest("none") is None
    assert found.schema(9) is None
    bill = found.schema(4)
    assert bill is not None
    assert (bill.schema_type, bill.guid) == ("PROTOBUF", None)
    assert bill.references == (SchemaReference("money.proto", "money", 1),)
    assert found.referenced(bill) == {"money.proto": found.schema(3)}
    assert found.is_complete
    assert not len(found.problems)
    one = found.version("orders-value", 2)
    assert one is not None
    assert (one.offset, one.timestamp) == (2, T0 + 2)
    assert "6 versions of 5 subjects, 5 schemas" in repr(found)


def test_a_guid_is_the_md5_of_a_text_without_references_and_rules(topic: TopicLog) -> None:
    text = (
        '{"type":"record","name":"myrecord","fields":[{"type":"string","default":null,"name":"f"}]}'
    )
    stored = "0A0B0C0D-0000-4000-8000-000000000001"
    found = replayed(
        topic,
        schema("a", 1, 1, text),
        schema("b", 1, 2, AVRO, ruleSet={"domainRules": []}),
        schema("c", 1, 3, AVRO_2, metadata={"properties": {"owner": "x"}}, guid=stored),
    )
    guid = str(uuid.UUID(bytes=bytes(one % 256 for one in _PINNED_MD5)))
    first = found.schema(1)
    assert first is not None
    assert first.guid == guid
    assert found.schema_of_guid(guid.upper()) == first
    ruled, named = found.schema(2), found.schema(3)
    assert ruled is not None
    assert named is not None
    assert ruled.guid is None
    assert named.guid == stored.lower()
    assert found.schema_of_guid(stored) == named
    # A name of a file is made of it.
    odd = replayed(topic, schema("d", 1, 4, PROTO, references=[], guid="../../x")).schema(4)
    assert odd is not None
    assert odd.guid not in (None, "../../x")
    contract = found.versions("c")[0].contract
    assert contract is not None
    assert json.loads(contract) == {"metadata": {"properties": {"owner": "x"}}}


def test_a_guid_that_only_a_later_record_has(topic: TopicLog) -> None:
    guid = "0a0b0c0d-0000-4000-8000-000000000001"
    references = [{"name": "a", "subject": "a", "version": 1}]
    found = replayed(
        topic,
        schema("a", 1, 1, '"int"'),
        schema("b", 1, 2, PROTO, references=references),
        schema("c", 1, 2, PROTO, references=references, guid=guid),
        schema("d", 1, 2, PROTO, guid=guid),
    )
    assert found.schema_of_guid(guid) == found.schema(2)
    assert len(found.schemas) == 2
    row = FrameReader(found).read(
        read_records(build_batches(value=[b""], headers=[[("__value_schema_id", b"\1"
                                   + bytes.fromhex(guid.replace("-", "")))]]))
    ).schema[0]  # fmt: skip
    assert found.schemas[row] == found.schema(2)
    assert [len(one.schema.references) for one in found][1:] == [1, 1, 0]


def test_deletions(topic: TopicLog) -> None:
    topic.add(*(schema("s", number, number, f'"{number}"') for number in range(1, 5)))
    topic.add(delete_subject("s", 2))
    assert listed(replayed(topic)) == [
        ("s", 1, 1, True), ("s", 2, 2, True), ("s", 3, 3, False), ("s", 4, 4, False),
    ]  # fmt: skip
    found = replayed(topic, schema("s", 4, 4, '"4"', deleted=True), (schema_key("s", 1), None))
    assert listed(found) == [("s", 2, 2, True), ("s", 3, 3, False), ("s", 4, 4, True)]
    assert found.schema(1) is None
    assert found.schema(2) is not None
    assert found.newest("s") == found.schema(3)
    # Redpanda's deletion of a subject has no version.
    found = replayed(topic, setting("DELETE_SUBJECT", "s", {"subject": "s"}))
    assert found.newest("s") is None
    assert found.subjects == ["s"]
    # A registration brings a version back; a tombstone of the deletion means nothing.
    found = replayed(topic, schema("s", 3, 3, '"3"'), setting("DELETE_SUBJECT", "s", None))
    assert listed(found)[1] == ("s", 3, 3, False)
    found = replayed(topic, setting("CLEAR_SUBJECT", "s", {"subject": "s"}))
    assert listed(found) == [("s", 3, 3, False)]
    assert found.is_complete


def test_an_id_stays_while_a_version_has_it(topic: TopicLog) -> None:
    topic.add(schema("a", 1, 1, '"int"'), schema("b", 1, 1, '"int"'), (schema_key("a", 1), None))
    assert replayed(topic).schema(1) is not None
    found = replayed(topic, schema("b", 1, 2, '"long"'))
    assert (found.schema(1), listed(found)) == (None, [("b", 1, 2, False)])


def test_an_id_with_another_text_is_refused(topic: TopicLog) -> None:
    topic.add(schema("a", 1, 1, '"int"', deleted=True), schema("b", 1, 1, '"long"'))
    found = replayed(topic, schema(":.x:b", 1, 1, '"long"'))
    assert listed(found) == [(":.x:b", 1, 1, False), ("a", 1, 1, True)]
    (problem,) = found.problems
    assert problem.symbol == "DUPLICATE_SCHEMA_ID"
    assert found.is_complete
    # After a permanent deletion the id is free.
    found = replayed(topic, (schema_key("a", 1), None), schema("b", 1, 1, '"long"'))
    assert listed(found)[-1] == ("b", 1, 1, False)


def test_contexts(topic: TopicLog) -> None:
    money = [{"name": "m", "subject": "money", "version": 1}]
    topic.add(
        (compact({"keytype": "CONTEXT", "tenant": "default", "context": ".x"}), b"{}"),
        schema("money", 1, 1, '"a"'),
        schema(":.x:money", 1, 1, '"b"'),
        schema(":.x:order", 1, 2, '"c"', references=money),
        schema(":.y:order", 1, 2, '"d"', references=money),
    )
    found = replayed(topic, schema(":.x:old", 1, 3, '"e"', deleted=True))
    texts = [found.schema(1), found.schema(1, context="."), found.schema(1, context=".x")]
    assert [one and one.text for one in texts] == ['"a"', '"a"', '"b"']
    in_x, in_y = found.schema(2, context=".x"), found.schema(2, context=".y")
    assert in_x is not None
    assert in_y is not None
    assert found.referenced(in_x)["m"].text == '"b"'
    assert found.referenced(in_y)["m"].text == '"a"'
    found = replayed(topic, setting("CLEAR_SUBJECT", ":.x:", {"subject": ":.x:"}))
    assert ":.x:old" not in found.subjects
    assert len(found) == 4
    assert [context_of(one) for one in (":.x:s", ":.:s", "s", ":s", ":.x", ":.x:")] == [
        ".x", "", "", "", "", ".x",
    ]  # fmt: skip


def test_settings(topic: TopicLog) -> None:
    topic.add(
        schema("a", 1, 1, "1"), schema("b", 1, 1, "1"), schema(":.x:c", 1, 1, "1"),
        setting("CONFIG", None, {"compatibilityLevel": "FULL"}),
        setting("CONFIG", ":.x:", {"compatibilityLevel": "NONE"}),
        setting("CONFIG", "b", {"compatibilityLevel": "FORWARD"}),
        setting("MODE", None, {"mode": "IMPORT"}),
    )  # fmt: skip
    found = replayed(topic)
    levels = [found.compatibility_of(one) for one in ("a", "b", ":.x:c")]
    assert levels == ["FULL", "FORWARD", "NONE"]
    assert found.mode_of("a") == "IMPORT"
    found = replayed(topic, setting("CONFIG", "b", None), setting("CONFIG", None, None))
    assert found.compatibility_of("b") is None
    table = found.to_table()
    assert table["compatibility"] == ["NONE", None, None]
    assert table.to_arrow().num_rows == 3


def test_states_of_the_past(topic: TopicLog) -> None:
    topic.add(schema("a", 1, 1, '"int"'), schema("a", 2, 2, '"long"'), delete_subject("a", 2))
    folder = topic.write()
    assert listed(open_registry(folder, as_of=1)) == [("a", 1, 1, False)]
    moment = datetime.datetime.fromtimestamp((T0 + 1) / 1000, datetime.UTC)
    assert len(open_registry(folder, as_of=moment)) == 2
    with pytest.raises(ValueError, match="after the last offset"):
        open_registry(folder, as_of=4)


def test_what_compaction_removed_is_named(topic: TopicLog) -> None:
    topic.add(schema("a", 1, 1, '"int"'), schema("a", 1, 1, '"int"', deleted=True)).without([0])
    folder = topic.add(schema("b", 1, 2, '"long"')).write()
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\n_schemas 0 2\n")
    assert not len(open_registry(folder.parent).problems)
    (problem,) = open_registry(folder.parent, as_of=1).problems
    assert (problem.symbol, problem.topic) == ("COMPACTED", "_schemas")


def test_a_state_after_the_cleaned_offset_is_exact(topic: TopicLog) -> None:
    topic.add(schema("a", 1, 1, '"int"'), schema("a", 1, 1, '"int"', deleted=True)).without([0])
    topic.add(schema("b", 1, 2, '"long"'), producer_id=5).end(5)
    folder = topic.add(schema("c", 1, 3, '"float"')).write()
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\n_schemas 0 2\n")
    found = open_registry(folder.parent, as_of=4)
    assert found.subjects == ["a", "b"]
    assert not len(found.problems)


def test_deleted_records_are_named(topic: TopicLog) -> None:
    folder = topic.add(schema("a", 1, 1, '"int"'), schema("b", 1, 2, '"long"')).write()
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\n_schemas 0 1\n")
    found = open_registry(folder.parent)
    assert [one.symbol for one in found.problems] == ["DELETED_RECORDS"]
    assert found.subjects == ["b"]


def test_writes_of_redpanda(topic: TopicLog) -> None:
    value = schema("a", 1, 1, '"int"')[1]
    found = replayed(
        topic,
        (schema_key("a", 1, seq=0, node=2), value),
        # Another node was faster: the record is not at the offset that it expected.
        (schema_key("a", 2, seq=0, node=1), schema("a", 2, 1, '"int"')[1]),
        (schema_key("b", 1, seq=2, node=1), schema("b", 1, 1, '"int"')[1]),
        (schema_key("b", 1, seq=2, node=1), None),
    )
    assert listed(found) == [("a", 1, 1, False)]


@pytest.mark.parametrize(
    ("key", "value", "symbol"),
    [
        (None, b"{}", "BAD_SCHEMA"),
        (b"no", b"{}", "BAD_SCHEMA"),
        (b"[]", b"{}", "BAD_SCHEMA"),
        (b"\xff", b"{}", "BAD_SCHEMA"),
        (b"[" * 100_000, b"{}", "BAD_SCHEMA"),
        (b'{"keytype":7}', b"{}", "UNKNOWN_KEYTYPE"),
        (b'{"keytype":"ASSOCIATION"}', b"{}", "UNKNOWN_KEYTYPE"),
        (b'{"keytype":"SCHEMA","version":1}', b"{}", "BAD_SCHEMA"),
        (b'{"keytype":"SCHEMA","subject":[],"version":1}', b"{}", "BAD_SCHEMA"),
        (b'{"keytype":"SCHEMA","subject":"a","version":true}', b"{}", "BAD_SCHEMA"),
        (schema_key("a", 1), b"[]", "BAD_SCHEMA"),
        (schema_key("a", 1), b"x", "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":-1,"schema":"x"}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":' + b"9" * 5_000 + b',"schema":"x"}', "BAD_SCHEMA"),
        (schema_key("a", 0), b'{"id":1,"schema":"x"}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1,"schema":{}}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1,"schema":"x","references":7}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1,"schema":"x","references":[7]}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1,"schema":"x","references":[{}]}', "BAD_SCHEMA"),
        (schema_key("a", 1), b'{"id":1,"schema":"' + b"x" * (8 << 20) + b'"}', "BAD_SCHEMA"),
        (setting("DELETE_SUBJECT", "a", {"version": "x"})[0], b'{"version":"x"}', "BAD_SCHEMA"),
    ],
)  # fmt: skip
def test_a_record_that_is_none_of_a_registry_is_named(
    topic: TopicLog, key: bytes | None, value: bytes, symbol: str
) -> None:
    found = replayed(topic, (key, value), schema("b", 1, 2, '"int"'))
    assert [one.symbol for one in found.problems] == [symbol]
    assert found.is_complete is (symbol == "UNKNOWN_KEYTYPE")
    assert listed(found) == [("b", 1, 2, False)]


def test_problems_are_limited(topic: TopicLog) -> None:
    found = replayed(topic, *[(b"x", None)] * 1_500)
    assert len(found.problems) == 1_001
    assert "and 500 more problems" in str(list(found.problems)[-1])


# ---- references ------------------------------------------------------------------------------


def refers(*subjects: str, version: int = 1) -> list[dict[str, object]]:
    return [{"name": one, "subject": one, "version": version} for one in subjects]


def test_references_come_before_what_refers_to_them(topic: TopicLog) -> None:
    found = replayed(
        topic,
        schema("a", 1, 1, "1"),
        schema("b", 1, 2, "2", references=refers("a")),
        schema("c", 1, 3, "3", references=refers("b", "a")),
        schema("d", 1, 4, "4", references=refers("c", version=-1)),
    )
    newest = found.newest("d")
    assert newest is not None
    assert list(found.referenced(newest)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (refers("b"), "'b' refers to itself"),
        (refers("a"), "'b' refers to itself"),
        (refers("none"), "'none' is version 1 of 'none', which does not exist"),
        (refers("a", version=7), "'a' is version 7 of 'a'"),
        (refers("none", version=-1), "'none' is version -1"),
    ],
)
def test_references_that_cannot_be_followed(
    topic: TopicLog, references: list[dict[str, object]], message: str
) -> None:
    topic.add(schema("a", 1, 1, "1", references=refers("b")))
    newest = (found := replayed(topic, schema("b", 1, 2, "2", references=references))).newest("b")
    assert newest is not None
    with pytest.raises(SchemaError, match=message):
        found.referenced(newest)


def test_references_are_limited(topic: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [schema("s0", 1, 1, "0")]
    chain += [
        schema(f"s{number}", 1, number + 1, str(number), references=refers(f"s{number - 1}"))
        for number in range(1, 3_000)
    ]
    found = replayed(topic, *chain)
    last = found.newest("s2999")
    assert last is not None
    assert len(found.referenced(last)) == 2_999  # no recursion
    monkeypatch.setattr("kafkascan.schemas.registry.MAX_REFERENCED", 2_000)
    with pytest.raises(SchemaError, match="more than 2000 schemas"):
        found.referenced(last)


def test_schemas_above_the_total_limit_are_named(
    topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkascan.schemas.registry.MAX_TOTAL_SIZE", 150)
    found = replayed(topic, schema("a", 1, 1, "1" * 50), schema("b", 1, 2, "2" * 50))
    assert found.subjects == ["a"]
    assert [one.symbol for one in found.problems] == ["BAD_SCHEMA"]


def test_deletions_take_no_quadratic_time(topic: TopicLog) -> None:
    count = 20_000
    topic.add(*(schema("s", one, one, "1") for one in range(2, count)))
    topic.add(schema("s", 1, 1, "1"))
    for _ in range(count // 2):
        topic.add(delete_subject("s", 1), setting("CLEAR_SUBJECT", "s", {}))
    folder = topic.write()
    start = time.process_time()
    found = open_registry(folder)
    assert time.process_time() - start < 5
    assert len(found) == count - 2


def test_a_copy_for_the_tasks_of_a_job_is_small(topic: TopicLog) -> None:
    """It has all schemas, because an id in a record may be that of any subject."""
    found = replayed(
        topic,
        *(schema(f"topic-{one}-value", 1, one, AVRO_2.replace("note", f"n{one}"))
          for one in range(500)),
        schema("bad", 1, 1, AVRO), delete_subject("topic-3-value", 1),
        setting("CONFIG", "topic-4-value", {"compatibilityLevel": "NONE"}),
    )  # fmt: skip
    packed = pickle.dumps(found)
    assert len(packed) < sum(len(one.text) for one in found.schemas) / 2
    copied = pickle.loads(packed)
    assert [*copied] == [*found]
    assert copied.to_table().rows() == found.to_table().rows()
    assert (copied.place, copied.schemas, copied.guids) == (found.place, found.schemas, found.guids)
    assert [*copied.problems] == [*found.problems] != []
