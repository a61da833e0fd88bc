"""The commands about schema registries."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from kafkascan.io import folders
from kafkascan.io.source_protocols import FilePins
from tests.support.command_line import rows, run
from tests.support.paths import GOLDEN
from tests.support.schema_topics import AVRO, AVRO_2, PROTO

DATA = GOLDEN / "kafka-4.4.0-schemas" / "data"
TOPIC = DATA / "_schemas-0"


def test_versions_are_listed() -> None:
    done = run("schemas", DATA)
    assert done.returncode == 1  # an id is refused
    assert "DUPLICATE_SCHEMA_ID" in done.stderr
    assert done.stdout == run("schemas", "list", DATA).stdout
    assert run("schemas", "--wide", TOPIC).stdout.splitlines()[0].split()[-3:] == [
        "offset", "timestamp", "schema",
    ]  # fmt: skip
    listed = rows("schemas", DATA, "--columns", "subject,version,schema", code=1)
    assert {"subject": "orders-value", "version": 1, "schema": AVRO} in listed
    assert len(rows("schemas", DATA, "--as-of", "5")) == 3
    assert run("schemas", DATA, "--as-of", "12").returncode == 1  # compaction removed records


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ("orders-value", AVRO_2),
        ("orders-value:1", AVRO),
        (":.staging:orders-value", '"long"'),
        (":.staging:orders-value:1", '"long"'),
        ("2", AVRO_2),
        ("back-value", '"double"'),
        ("back-value:1", '"bytes"'),
        ("8", '"bytes"'),
        ("bills-value", PROTO.rstrip()),
    ],
)
def test_a_schema_is_shown(which: str, text: str) -> None:
    assert run("schemas", DATA, "--show", which).stdout == f"{text}\n"


@pytest.mark.parametrize(
    "which", ["none", "orders-value:9", "7", "orders-value:x", ":", "", "9" * 30]
)
def test_a_schema_that_is_not_there(which: str) -> None:
    done = run("schemas", DATA, "--show", which)
    assert (done.returncode, done.stdout) == (3, "")
    assert "[NO_SCHEMA]" in done.stderr


def test_a_schema_is_written_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "order.txt"
    run("schemas", DATA, "--show", "orders-value:1", "--output", target)
    assert target.read_text() == f"{AVRO}\n"


def test_records_are_counted_by_schema(tmp_path: Path) -> None:
    found = rows("schemas", "usage", DATA, "--topic", "orders", code=1)
    assert [(one["subject"], one["version"], one["records"]) for one in found[:3]] == [
        ("orders-key", 1, 1), ("orders-value", 1, 3), ("orders-value", 2, 2),
    ]  # fmt: skip
    assert rows("schemas", "usage", DATA / "orders-0", "--registry", DATA, code=1) == found
    staged = rows("schemas", "usage", DATA, "--context", ".staging", code=1)
    assert {(one["subject"], one["id"]) for one in staged if one["framing"] == "confluent"} == {
        (":.staging:orders-value", 1)
    }
    keys = rows("schemas", "usage", DATA, "--keys", code=1)
    assert [one["framing"] for one in keys] == ["no_prefix"]
    other = run("schemas", "usage", DATA, "--context", ".none")
    assert (other.returncode, other.stdout) == (2, "")
    assert "there is no context '.none', only the default one, '.staging'" in other.stderr
    without = run("schemas", "usage", DATA / "orders-0", "--registry", GOLDEN / "kafka-4.4.0/data")
    assert (without.returncode, without.stdout) == (3, "")
    shutil.copytree(TOPIC, tmp_path / "registry-0")
    shutil.copytree(DATA / "orders-0", tmp_path / "orders-0")
    named = ("--schemas-topic", "registry", "--topic", "orders")
    assert rows("schemas", "usage", tmp_path, *named, code=1) == found


def test_an_export_is_a_registry(tmp_path: Path) -> None:
    exported = rows("schemas", "export", DATA, tmp_path / "out", code=1)
    assert len(exported) == 11
    assert (tmp_path / "out" / "orders-value-v1.id1.avsc").read_text() == AVRO
    columns = ("--columns", "subject,version,id,is_deleted,schema,guid,compatibility,mode")
    assert rows("schemas", tmp_path / "out", *columns) == rows("schemas", DATA, *columns, code=1)
    lines = (tmp_path / "out" / "import.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"method": "PUT", "path": "/mode", "body": {"mode": "IMPORT"}}
    again = run("schemas", "export", DATA, tmp_path / "out")
    assert again.returncode == 3
    assert "not empty" in again.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "17.avsc").write_text(AVRO)
    assert run("schemas", tmp_path).returncode == 0
    done = run("schemas", tmp_path, "--as-of", "3")
    assert done.returncode == 2
    assert "as_of is for the log" in done.stderr
    assert run("schemas", DATA, "--as-of", "99").returncode == 2
    assert run("schemas", tmp_path / "none").returncode == 3
    assert run("schemas", "http://127.0.0.1:1/").returncode == 3
    assert run("schemas").returncode == 2
    assert "Commands:" in run("schemas", "--help").stdout
    assert "--show" in run("schemas", "list", "--help").stdout


def test_usage_where_a_partition_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders-0", "_schemas-0"):
        shutil.copytree(DATA / name, tmp_path / name)
    (tmp_path / "secret-0").mkdir()
    files_in = folders.files_in

    def refuse(path: Path) -> FilePins:
        if path.name == "secret-0":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return files_in(path)

    monkeypatch.setattr(folders, "files_in", refuse)
    done = run("schemas", "usage", tmp_path, "--format", "jsonl")
    assert done.returncode == 3
    assert f"{tmp_path / 'secret-0'}: Permission denied [UNREADABLE]" in done.stderr
    assert '"topic": "orders"' in done.stdout
