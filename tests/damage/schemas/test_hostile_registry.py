"""Records of a registry's topic that others wrote: nothing of them raises, or is lost silently."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.schemas import export_schemas, import_requests, open_registry
from kafkascan.schemas.registry import SchemaError
from tests.oracle.scenarios.registry import RECORDS
from tests.support.examples import seeds
from tests.support.internal_topics import KeyValue, TopicLog
from tests.support.paths import GOLDEN
from tests.support.schema_topics import schema

_BITS = (
    b"null", b"true", b"-1", b"0", b"9" * 30, b"1e400", b"NaN", b'""', b"[]", b"{}", b"[{}]",
    b'"x"', b'"\\ud800"', b"[" * 2_000, b"\xff", b"",
)  # fmt: skip


def mutated(random_: random.Random, raw: bytes | None) -> bytes | None:
    """Return a key or value with a part of it replaced, as far as possible at JSON's tokens."""
    if raw is None or random_.random() < 0.5:
        return raw
    found = raw.decode()
    if random_.random() < 0.7:
        values = json.loads(found)
        name = random_.choice([*values, "deleted", "references", "subject", "seq"])
        values[name] = "@"
        return json.dumps(values).encode().replace(b'"@"', random_.choice(_BITS))
    at = random_.randrange(len(raw))
    return raw[:at] + random_.choice(_BITS) + raw[at + random_.choice([0, 1, 9]) :]


@pytest.mark.parametrize("seed", seeds(400))
def test_mutated_records(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    records: list[KeyValue] = [
        (mutated(random_, key), mutated(random_, value)) for key, value in RECORDS
    ]
    folder = TopicLog(tmp_path / "_schemas-0").add(*records).write()
    found = open_registry(folder)
    found.to_table().arrow_table()
    repr(found)
    for one in found:
        try:
            found.referenced(one.schema)
        except SchemaError as error:
            assert str(error)
        assert one.version >= 1
        assert one.schema.id >= 0
    export_schemas(found, tmp_path / "out")
    again = open_registry(tmp_path / "out")
    assert [(one.subject, one.version, one.schema.text) for one in again] == [
        (one.subject, one.version, one.schema.text) for one in found
    ]
    assert len(list(import_requests(found))) >= len(found)


@pytest.mark.parametrize("seed", seeds(100))
def test_damaged_logs(tmp_path: Path, seed: int) -> None:
    """Either the schemas are those of the intact log, or there is a problem."""
    random_ = random.Random(seed)
    intact = open_registry(GOLDEN / "kafka-4.4.0-schemas" / "data" / "_schemas-0")
    folder = tmp_path / "_schemas-0"
    folder.mkdir()
    for path in (GOLDEN / "kafka-4.4.0-schemas" / "data" / "_schemas-0").glob("*.log"):
        data = bytearray(path.read_bytes())
        if path.name.startswith("0" * 19 + "0"):
            at = random_.randrange(len(data))
            data[at : at + 1] = random_.choice([b"", bytes([data[at] ^ 1 << random_.randrange(8)])])
        (folder / path.name).write_bytes(data)
    try:
        found = open_registry(folder)
    except (ks.format.KafkaScanError, OSError):
        return
    if len(found.problems) == len(intact.problems):
        # An offset is not covered by the checksum.
        undated = [[replace(one, offset=None) for one in both] for both in (found, intact)]
        assert undated[0] == undated[1]


@pytest.mark.parametrize("depth", [*range(20, 1_000, 20), *range(900, 1_000, 3)])
def test_nested_rules(tmp_path: Path, depth: int) -> None:
    """What is read can also be exported, and read again."""
    key, value = schema("a", 1, 1, '"int"', ruleSet={"x": "@"})
    assert value is not None
    value = value.replace(b'"@"', b"[" * depth + b"]" * depth)
    found = open_registry(TopicLog(tmp_path / "_schemas-0").add((key, value)).write())
    assert len(found) + len(found.problems) == 1
    export_schemas(found, tmp_path / "out")
    assert [*open_registry(tmp_path / "out")] == [replace(one, offset=None, timestamp=None)
                                                  for one in found]  # fmt: skip


def test_rules_that_are_no_json(tmp_path: Path) -> None:
    record = (b'{"keytype":"SCHEMA","subject":"a","version":1}',
              b'{"id":1,"schema":"1","ruleSet":{"x":NaN}}')  # fmt: skip
    found = open_registry(TopicLog(tmp_path / "_schemas-0").add(record).write())
    assert [one.symbol for one in found.problems] == ["BAD_SCHEMA"]
