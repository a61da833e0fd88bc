"""`kafkascan records --value-as auto`: values by the schemas of a registry, in each format."""

from __future__ import annotations

import json
import struct
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkascan.write import build_batches
from tests.support.command_line import rows, run
from tests.support.paths import GOLDEN

_TYPED = GOLDEN / "kafka-4.4.0-typed" / "data"
_AVRO = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three records; the last one is damaged."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    values = [b"\x02\x00", b"\x04\x02\x06\xc3\xbc\x22", b"\x06\x08"]
    log = build_batches(offset=0, value=[struct.pack(">bi", 0, 7) + one for one in values])
    (folder / "00000000000000000000.log").write_bytes(log)
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry.json"
    row = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(_AVRO)}
    path.write_text(json.dumps([row]))
    return path


def _run(log: Path, registry: Path, *options: str) -> str:
    found = run("records", log, "--value-as", "auto", "--registry", registry, *options)
    assert found.returncode == 1
    assert "the value of offset 2 is not decoded" in found.stderr
    return found.stdout


def test_json_lines(log: Path, registry: Path) -> None:
    lines = _run(log, registry, "--format", "jsonl", "--columns", "value").splitlines()
    assert lines == [
        '{"value": {"id": 1, "note": null}}',
        '{"value": {"id": 2, "note": "\\u00fc\\""}}',
        '{"value": null}',
    ]


def test_csv(log: Path, registry: Path) -> None:
    lines = _run(log, registry, "--format", "csv", "--columns", "offset,value").splitlines()
    assert lines == [
        "offset,value",
        '0,"{""id"": 1, ""note"": null}"',
        '1,"{""id"": 2, ""note"": ""ü\\""""}"',
        "2,",
    ]


def test_a_table_and_templates(log: Path, registry: Path) -> None:
    assert '{"id": 1, "note": null}' in _run(log, registry)
    assert _run(log, registry, "-f", "%o %S %s\\n").splitlines()[::2] == [
        '0 23 {"id": 1, "note": null}',
        "2 -1 ",
    ]


def test_json_without_a_registry(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batches(offset=0, value=[b'{"b": 1, "a": "x"}', b'{"a": "y"}']))
    shown = ("--columns", "value", "--format", "jsonl", "--value-as", "json")
    found = run("records", path, *shown, "--json-schema", "inferred")
    assert found.returncode == 0
    assert "INFERRED_SCHEMA" in found.stderr
    assert found.stdout.splitlines() == [
        '{"value": {"b": 1, "a": "x"}}',
        '{"value": {"b": null, "a": "y"}}',
    ]
    schema = tmp_path / "schema.json"
    schema.write_text('{"properties": {"a": {"type": "string"}}}')
    found = run("records", path, *shown, "--json-schema", schema)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == ['{"value": {"a": "x"}}', '{"value": {"a": "y"}}']
    assert run("records", path, "--json-schema", "inferred").returncode == 2


def test_json_schemas_of_a_registry(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    values = [struct.pack(">bi", 0, 7) + one for one in (b'{"a": 1}', b'{"a": []}')]
    (folder / "00000000000000000000.log").write_bytes(build_batches(offset=0, value=values))
    rows = [
        {"subject": "a", "version": 1, "id": 1, "schemaType": "JSON",
         "schema": '{"$id": "a.json", "type": "integer"}'},
        {"subject": "orders-value", "version": 1, "id": 7, "schemaType": "JSON",
         "schema": '{"properties": {"a": {"$ref": "a.json"}}}',
         "references": [{"name": "a.json", "subject": "a", "version": 1}]},
    ]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    found = run("records", folder, "--value-as", "auto", "--registry", tmp_path / "registry.json",
                "-f", "%s\\n")  # fmt: skip
    assert (found.returncode, found.stdout) == (1, '{"a": 1}\n\n')
    assert "BAD_VALUE_TYPE" in found.stderr


TYPED_DATA = GOLDEN / "kafka-4.4.0-typed" / "data"


@pytest.mark.parametrize("form", ["jsonl", "csv", "json", "table"])
def test_topics_of_kafka_and_of_the_registry_stay_as_they_are(form: str) -> None:
    done = run("records", TYPED_DATA, "--value-as", "auto", "--format", form)
    assert done.returncode == 1
    (finding,) = done.stderr.splitlines()
    assert "the value of offset 81 is not decoded" in finding
    assert done.stdout.count("payments-value") >= 2


def test_topics_of_different_types_need_a_file_each(tmp_path: Path) -> None:
    path = tmp_path / "both.parquet"
    topics = ("-t", "orders", "-t", "payments")
    done = run("records", TYPED_DATA, *topics, "--value-as", "auto", "--output", path)
    assert done.returncode == 2
    assert "topic payments have other types than those before them" in done.stderr
    assert not path.exists()
    done = run("records", TYPED_DATA, "-t", "payments", "--value-as", "auto", "--output", path)
    assert done.returncode == 0
    found = pq.read_table(path, columns=["value"])
    assert found.schema.field("value").type.field("id").type == pa.int64()


def test_a_schema_and_a_message_are_named() -> None:
    log = TYPED_DATA / "payments-0"
    options = ("--value-as", "auto", "--columns", "value", "--limit", "1")
    (row,) = rows("records", log, *options, "--value-schema", "payments-value:1")
    assert set(row["value"]) == {"id", "card", "amount"}
    named = (*options, "--value-schema", "payments-value", "--value-message")
    (row,) = rows("records", log, *named, "shop.Payment")
    assert "target" not in row["value"]
    assert "account" in row["value"]
    done = run("records", log, *named, "shop.Nothing")
    assert done.returncode == 3
    assert "no message 'shop.Nothing'" in done.stderr
    for wrong in (
        ("--registry", TYPED_DATA),
        ("--key-as", "auto", "--value-schema", "payments-value"),
        ("--value-schema", "payments-value"),
        ("--value-as", "auto", "--value-message", "shop.Payment"),
        ("--value-as", "auto", "--value-schema", "payments-value:99"),
        ("--value-as", "auto", "--value-schema", f"payments-value:{'9' * 5000}"),
    ):
        assert run("records", log, *wrong).returncode == 2, wrong
    done = run("records", GOLDEN / "kafka-4.4.0/data/headers-0", "--value-as", "auto")
    assert done.returncode == 2
    assert "has no topic _schemas: name the schemas with --registry" in done.stderr


def test_problems_name_their_partition(tmp_path: Path) -> None:
    value = build_batches(offset=0, value=[b"no prefix"])
    for partition in ("orders-0", "orders-1"):
        (tmp_path / partition).mkdir()
        (tmp_path / partition / f"{0:020}.log").write_bytes(value)
    done = run("records", tmp_path, "--value-as", "auto", "--registry", TYPED_DATA)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert f"{tmp_path / 'orders-0'}: the value of offset 0" in first
    assert f"{tmp_path / 'orders-1'}: the value of offset 0" in second


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar with a data directory of typed topics and their registry."""
    path = tmp_path_factory.mktemp("tar") / "backup.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(_TYPED, "data")
    return path


def test_typed_values_out_of_a_tar(archive: Path) -> None:
    options = ["--topic", "orders", "--value-as", "auto", "--limit", "20"]
    found = rows("records", archive, *options)
    assert found == rows("records", _TYPED, *options)
    assert {one["value"]["id"] for one in found}
    query = 'SELECT "offset", value.id FROM orders WHERE "offset" < 5'
    typed = ["--value-as", "auto"]
    assert rows("sql", query, archive, *typed) == rows("sql", query, _TYPED, *typed)


def test_a_registry_that_cannot_be_read_is_not_written(log: Path, tmp_path: Path) -> None:
    done = run("records", log, "--value-as", "auto", "--registry", tmp_path / "none")
    assert done.returncode == 3
    assert done.stderr == (
        f"kafkascan: {tmp_path}/none: cannot read the schema registry: No such file or directory"
        " [NO_REGISTRY]\n"
    )


def test_the_recovery_of_a_tar_says_one_thing(archive: Path) -> None:
    for options in [], ["--write"]:
        done = run("recover", archive, *options)
        assert done.returncode == 3
        assert done.stderr.splitlines()[0] == (
            f"{archive}: a tar archive is only read: unpack it, and recover the directory"
        )
        assert "Not a directory" not in done.stdout + done.stderr
