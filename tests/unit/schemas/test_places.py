"""Registries in folders, dumps and running servers, and what is exported for them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.schemas import (
    Registry,
    RegistryError,
    export_schemas,
    import_requests,
    open_registry,
)
from tests.support.internal_topics import TopicLog
from tests.support.schema_topics import (
    AVRO,
    AVRO_2,
    MONEY,
    PROTO,
    delete_subject,
    schema,
    setting,
)

ODD_SUBJECT = ":.x:a/b \udc80ü%\x00../.."
LONG_SUBJECT = "long" * 200
_REFERENCES = [{"name": "money.proto", "subject": "money", "version": 1}]
_ODD_REFERENCES = [{"name": "\ud800", "subject": "\udfff", "version": 1}]
_RULES = {"domainRules": [{"name": "r", "kind": "CONDITION"}]}


@pytest.fixture
def topic(tmp_path: Path) -> TopicLog:
    log = TopicLog(tmp_path / "data" / "_schemas-0")
    return log.add(
        schema("bills-value", 1, 4, PROTO, schemaType="PROTOBUF", references=_REFERENCES),
        schema("orders-value", 1, 1, AVRO),
        schema("orders-value", 2, 2, AVRO_2, ruleSet=_RULES),
        schema("money", 1, 5, MONEY, schemaType="PROTOBUF"),
        schema(ODD_SUBJECT, 1, 1, '"\ud800"', schemaType="JSON"),
        schema(LONG_SUBJECT, 3, 7, "{}", schemaType="PLUGIN"),
        delete_subject("orders-value", 1),
        setting("CONFIG", None, {"compatibilityLevel": "FULL"}),
        setting("CONFIG", "money", {"compatibilityLevel": "NONE"}),
        setting("MODE", "money", {"mode": "READONLY"}),
    )


@pytest.fixture
def registry(topic: TopicLog) -> Registry:
    return open_registry(topic.write().parent)


def content(registry: Registry) -> list[tuple[object, ...]]:
    return [(one.subject, one.version, one.schema, one.is_deleted, one.contract)
            for one in registry]  # fmt: skip


def test_a_data_dir_a_partition_and_a_log_dir(topic: TopicLog, registry: Registry) -> None:
    folder = topic.folder
    (folder.parent / "orders-0").mkdir()
    for place in (folder, str(folder), ks.open_log_dir(folder.parent)):
        assert content(open_registry(place)) == content(registry)
    renamed = folder.rename(folder.with_name("registry-state-0"))
    assert content(open_registry(renamed)) == content(registry)
    assert content(open_registry(folder.parent, topic="registry-state")) == content(registry)
    with pytest.raises(NoLogsError, match="no partitions of _schemas"):
        open_registry(folder.parent)


def test_texts_that_are_no_unicode_are_escaped_in_tables(topic: TopicLog) -> None:
    topic.add(schema("odd", 1, 9, "odd", references=_ODD_REFERENCES))
    table = open_registry(topic.write()).to_table()
    row = table.to_arrow().to_pylist()[table["subject"].index("odd")]
    assert row["references"] == [{"name": r"\ud800", "subject": r"\udfff", "version": 1}]
    assert r"\ud800" in str(table.to_arrow()["schema"])
    assert json.loads(table.to_json())["is_complete"]


def test_a_topic_with_two_partitions_is_none_of_a_registry(topic: TopicLog) -> None:
    TopicLog(topic.folder.with_name("_schemas-1")).add(schema("a", 1, 1, "1")).write()
    with pytest.raises(RegistryError, match="2 partitions of _schemas"):
        open_registry(topic.write().parent)


# ---- exports ---------------------------------------------------------------------------------


def test_an_exported_folder_is_the_registry(registry: Registry, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    table = export_schemas(registry, folder)
    files = {one.name for one in folder.iterdir()}
    assert {*table["file"], "registry.json", "import.jsonl"} == files
    assert "orders-value-v2.id2.avsc" in files
    assert (folder / "bills-value-v1.id4.proto").read_text() == PROTO
    (odd,) = (one for one in files if one.endswith(".id1.json"))
    assert unquote(odd, errors="surrogatepass").startswith(ODD_SUBJECT)
    assert json.loads((folder / odd).read_text()) == "\ud800"
    assert max(len(one) for one in files) < 255
    again = open_registry(folder)
    assert content(again) == content(registry)
    assert (again.compatibility, again.modes) == (registry.compatibility, registry.modes)
    assert content(open_registry(folder / "registry.json")) == content(registry)
    with pytest.raises(OSError, match="not empty"):
        export_schemas(registry, folder)


def test_a_folder_without_the_dump_is_read_by_its_names(registry: Registry, tmp_path: Path) -> None:
    export_schemas(registry, tmp_path / "out")
    (tmp_path / "out" / "registry.json").unlink()
    found = open_registry(tmp_path / "out")
    assert set(found.subjects) == {*registry.subjects} - {LONG_SUBJECT}
    known = {(one.subject, one.version): one.schema.text for one in registry}
    known[ODD_SUBJECT, 1] = '"\\ud800"'
    assert all(one.schema.text == known[one.subject, one.version] for one in found)


def test_names_of_schema_files(tmp_path: Path) -> None:
    guid = "0a0b0c0d-0000-4000-8000-000000000001"
    (tmp_path / "17.avsc").write_text(AVRO, "utf-8-sig")
    (tmp_path / f"{guid.upper()}.proto").write_text(MONEY)
    (tmp_path / "s-v2-v3.id9.json").write_text("{}")
    (tmp_path / "orders.avsc").write_text(AVRO)
    (tmp_path / "18.avsc").write_bytes(b"\xff")
    (tmp_path / "19.avsc").mkdir()
    (tmp_path / "20.avsc").write_bytes(b"x" * ((8 << 20) + 1))
    (tmp_path / "README.md").write_text("not a schema")
    found = open_registry(tmp_path)
    first = found.schema(17)
    assert first is not None
    assert (first.text, first.schema_type) == (AVRO, "AVRO")
    assert [(one.subject, one.version) for one in found] == [
        (guid.upper(), 1), ("17", 1), ("s-v2", 3),
    ]  # fmt: skip
    of_glue = found.schema_of_guid(guid)
    assert of_glue is not None
    assert (of_glue.id, of_glue.text) == (-1, MONEY)
    assert found.schema(-1) is None
    assert found.to_table().where(subject=guid.upper())["id"] == [None]
    assert [one.message.split(" ")[0] for one in found.problems] == [
        "18.avsc", "19.avsc", "20.avsc", "orders.avsc",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="as_of is for the log"):
        open_registry(tmp_path, as_of=1)
    out = tmp_path / "out"
    export_schemas(found, out)
    assert (out / f"{guid}.proto").read_text() == MONEY
    assert len((out / "import.jsonl").read_text().splitlines()) == 4
    assert content(open_registry(out)) == content(found)


# The fields of the requests' bodies in Confluent's published description (OpenAPI) of the API:
# RegisterSchemaRequest, SchemaReference, ConfigUpdateRequest, ModeUpdateRequest.
_BODIES: dict[str, dict[str, type]] = {
    "versions": {
        "version": int, "id": int, "schemaType": str, "references": list, "schema": str,
        "metadata": dict, "ruleSet": dict,
    },
    "reference": {"name": str, "subject": str, "version": int},
    "config": {"compatibility": str},
    "mode": {"mode": str},
}  # fmt: skip


def require_fields(body: dict[str, Any], kind: str) -> None:
    assert body.keys() <= _BODIES[kind].keys()
    assert all(isinstance(one, _BODIES[kind][name]) for name, one in body.items())


def test_requests_restore_the_content(registry: Registry) -> None:
    requests: list[Any] = list(import_requests(registry))
    topic = FakeRegistry()
    for one in requests:
        method, path, body = one["method"], one["path"], one["body"]
        topic.change(method, path, body)
        kind = path.split("/")[1] if not path.endswith("/versions") else "versions"
        if body is not None:
            require_fields(body, kind)
            for reference in body.get("references", ()):
                require_fields(reference, "reference")
    assert [one["path"] for one in requests[:2]] == ["/mode", "/mode/%3A.x%3A"]
    known = {(one.subject, one.version): one for one in registry}
    assert topic.versions.keys() == known.keys()
    for key, row in topic.versions.items():
        assert (row["id"], row["schema"]) == (known[key].schema.id, known[key].schema.text)
        assert row.get("deleted", False) == known[key].is_deleted
    assert topic.settings == {
        ("config", ""): "FULL", ("config", "money"): "NONE",
        ("mode", ""): "READWRITE", ("mode", "money"): "READONLY",
    }  # fmt: skip


def test_a_cycle_of_references_is_exported(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "_schemas-0")
    for one, other in (("a", "b"), ("b", "a")):
        references = [{"name": other, "subject": other, "version": 1}]
        log.add(schema(one, 1, ord(one), one, references=references))
    requests = list(import_requests(open_registry(log.write())))
    assert len(requests) == 4


# ---- dumps and servers -----------------------------------------------------------------------


class FakeRegistry:
    """Applies requests of Confluent's API as its documentation describes them."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.settings: dict[tuple[str, str], str] = {}

    def change(self, method: str, path: str, body: Any) -> None:
        parts = f"{path[1:]}/".split("/")
        what, subject, *rest = [unquote(one, errors="surrogatepass") for one in parts]
        if what != "subjects" and method == "DELETE":
            del self.settings[what, subject]
            return
        if what != "subjects":
            (self.settings[what, subject],) = body.values()
            return
        if method == "DELETE":
            self.versions[subject, int(rest[1])]["deleted"] = True
            return
        context = ":.x:" if subject.startswith(":.x:") else ""
        assert self.settings["mode", context] == "IMPORT"
        for one in body.get("references", ()):
            assert (one["subject"], one["version"]) in self.versions
        self.versions[subject, body["version"]] = {"subject": subject, **body}


class Handler(BaseHTTPRequestHandler):
    """Answers as a registry."""

    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.server.asked.append(self.path)
        self.server.headers.append(dict(self.headers))
        code, answer = self.server.answer(unquote(url.path), query)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "http://127.0.0.1:9/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    """A registry with `rows`; without `lists`, it does not have GET /schemas."""

    rows: list[dict[str, Any]]
    page = 2
    lists = True
    fixed: tuple[int, object] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, object]:
        if self.fixed is not None:
            return self.fixed
        rows = [row for row in self.rows if query.get("deleted") == "true" or not row["deleted"]]
        plain = [{k: v for k, v in row.items() if k != "deleted"} for row in rows]
        if path == "/api/schemas" and self.lists:
            first = int(query.get("offset", 0)) if self.page else 0
            return 200, plain[first : first + self.page] if self.page else plain
        if path == "/api/subjects":
            return 200, sorted({row["subject"] for row in plain})
        subject = f"{path.removeprefix('/api')}/".split("/")[2]
        found = [row for row in plain if row["subject"] == subject]
        if path.endswith("/versions"):
            return (200, [row["version"] for row in found]) if found else (404, {})
        found = [row for row in found if str(row["version"]) == path.rpartition("/")[2]]
        return (200, found[0]) if found else (404, {})


@contextmanager
def serving(rows: list[dict[str, Any]], **settings: Any) -> Iterator[Server]:
    with Server() as server:
        server.rows = rows
        vars(server).update(settings)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def rows_of(registry: Registry) -> list[dict[str, Any]]:
    return [
        {
            "subject": one.subject, "version": one.version, "id": one.schema.id,
            "schema": one.schema.text, "schemaType": one.schema.schema_type,
            "references": [
                {"name": to.name, "subject": to.subject, "version": to.version}
                for to in one.schema.references
            ],
            "deleted": one.is_deleted,
        }
        for one in registry
        if "/" not in one.subject
    ]  # fmt: skip


def shown(registry: Registry) -> list[tuple[object, ...]]:
    return [
        (one.subject, one.version, one.schema.id, one.schema.text, one.schema.references,
         one.is_deleted)
        for one in registry
        if "/" not in one.subject
    ]  # fmt: skip


@pytest.mark.parametrize("settings", [{"page": 2}, {"page": 0}, {"lists": False}])
def test_a_running_registry(registry: Registry, settings: dict[str, Any]) -> None:
    with serving(rows_of(registry), **settings) as server:
        port = server.server_address[1]
        found = open_registry(f"http://user:p%40ss@127.0.0.1:{port}/api/?token=secret")
    assert shown(found) == shown(registry)
    assert found.place == f"http://127.0.0.1:{port}/api/"
    expected = base64.b64encode(b"user:p@ss").decode()
    assert {one["Authorization"] for one in server.headers} == {f"Basic {expected}"}
    assert all("token=secret" in one for one in server.asked)


def test_the_url_of_a_dump(registry: Registry) -> None:
    with serving([], fixed=(200, rows_of(registry))) as server:
        found = open_registry(f"http://127.0.0.1:{server.server_address[1]}/schemas.json")
    assert shown(found) == shown(registry)
    assert server.asked == ["/schemas.json"]


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ((401, {}), "the server answers 401"),
        ((302, b""), "the server answers 302"),
        ((200, b"<html>"), "it is no JSON"),
        ((200, {}), "does not answer as a schema registry"),
        ((200, b"[" * 200_000), "it is no JSON"),
    ],
)
def test_servers_that_are_no_registry(fixed: tuple[int, object], message: str) -> None:
    with serving([], fixed=fixed) as server, pytest.raises(RegistryError, match=message):
        open_registry(f"http://127.0.0.1:{server.server_address[1]}")


def test_a_server_that_is_not_there_and_one_that_sends_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving([]) as server:
        port = server.server_address[1]
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1.*no answer"):
        open_registry(f"http://127.0.0.1:{port}")
    monkeypatch.setattr("kafkascan.schemas.places._MAX_ANSWER", 1 << 20)
    with (
        serving([], fixed=(200, b" " * (3 << 20))) as server,
        pytest.raises(RegistryError, match="more than 1 MiB"),
    ):
        open_registry(f"http://127.0.0.1:{server.server_address[1]}")
    with monkeypatch.context() as patch, serving([], fixed=(200, [])) as server:
        patch.setattr("kafkascan.schemas.places._DEADLINE_S", -1)
        with pytest.raises(RegistryError, match="it takes more than"):
            open_registry(f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr("kafkascan.schemas.places._MAX_REQUESTS", 2)
    with serving([]) as server, pytest.raises(RegistryError, match="more than 2 requests"):
        open_registry(f"http://127.0.0.1:{server.server_address[1]}/api")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "no JSON"), ("7", "no list"), ('{"schemas":7}', "no list"), ("[" * 200_000, "no JSON")],
)
def test_dumps_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(RegistryError, match=message):
        open_registry(tmp_path / "a.json")


def test_rows_of_a_dump_that_are_no_schemas(tmp_path: Path) -> None:
    good = {"subject": "a", "version": 1, "id": 1, "schema": "1", "references": None}
    document = {"schemas": [7, {}, good], "config": {"a": 7, "": "FULL"}, "mode": []}
    (tmp_path / "a.json").write_text(json.dumps(document))
    found = open_registry(tmp_path / "a.json")
    assert found.subjects == ["a"]
    assert found.compatibility == {None: "FULL"}
    assert [one.message for one in found.problems] == [
        "schema 0 is left out: it is no object",
        "schema 1 is left out: subject is not a text",
    ]
