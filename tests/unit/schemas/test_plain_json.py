"""JSON without a registry as typed columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas import json_values
from kafkascan.schemas.programs.json_schema import JsonType, type_of_values
from kafkascan.write import build_batches


def _log(folder: Path, values: list[bytes | None]) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(build_batches(offset=0, value=values))
    return path


def _typed(path: Path, schema: str | None = None) -> tuple[list[Any], list[str]]:
    table = ks.read_records(path, value=json_values(schema))
    return table.typed["value"].to_pylist(), [one.symbol for one in table.problems]


def test_values_of_a_schema(tmp_path: Path) -> None:
    path = _log(tmp_path, [b'{"a": 1}', None, b'{"a": "1"}', b"", b"null", b'{"b": 2}'])
    schema = json.dumps({"properties": {"a": {"type": "integer"}}})
    assert _typed(path, schema) == (
        [{"a": 1}, None, None, None, None, {"a": None}],
        ["BAD_VALUE_TYPE", "BAD_JSON"],
    )
    with pytest.raises(ValueSchemaError):
        json_values("{")


def test_a_text_that_ends_early(tmp_path: Path) -> None:
    path = _log(tmp_path, [b'{"a": 1', b'{"a": 1}'])
    assert _typed(path, '{"properties": {"a": {"type": "integer"}}}') == (
        [None, {"a": 1}], ["BAD_JSON"],
    )  # fmt: skip


def test_types_of_a_sample(tmp_path: Path) -> None:
    path = _log(tmp_path, [b'{"a": 1}', b'{"a": 1.5, "b": [{"c": true}, {}]}', b"no JSON"])
    assert _typed(path) == (
        [{"a": 1.0, "b": None}, {"a": 1.5, "b": [{"c": True}, {"c": None}]}, None],
        ["INFERRED_SCHEMA", "BAD_JSON"],
    )


def test_values_that_are_no_json_or_have_too_many_members_are_text(tmp_path: Path) -> None:
    wide = json.dumps({f"m{number}": number for number in range(20_000)}).encode()
    assert _typed(_log(tmp_path, [None])) == ([None], ["INFERRED_SCHEMA"])
    assert _typed(_log(tmp_path, [wide])) == ([wide.decode()], ["INFERRED_SCHEMA"])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([b"1", b"2.5", b"null"], JsonType("number")),
        ([b"1", b"10000000000000000000"], JsonType("number")),
        ([b"1", b'"a"'], JsonType("text")),
        ([b"[]", b"[1]"], JsonType("array", item=JsonType("integer"))),
        ([b"{}", b'{"a": 1}'], JsonType("object", {"a": JsonType("integer")})),
        ([b'{"a\\"": 1}'], JsonType("text")),
        ([b"x", b"[" * 5000, b"\xff"], JsonType("any")),
    ],
)
def test_the_type_that_values_have(texts: list[bytes], kind: JsonType) -> None:
    assert type_of_values(texts) == kind


class _Log(bytes):
    def __str__(self) -> str:
        raise AssertionError("the text of a log takes longer than its values")


def test_bytes_have_no_text_as_their_path() -> None:
    table = ks.read_records(_Log(build_batches(value=[b"{}", b"-"])), value=json_values())
    assert {one.path for one in table.problems} == {"<_Log>"}
