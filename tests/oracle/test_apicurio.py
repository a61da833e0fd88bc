"""Prefixes and values that the serializers of Apicurio wrote are read back."""

from __future__ import annotations

import io
import json
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

import kafkascan as ks
from kafkascan.schemas import FrameReader, Framing, Registry, open_registry
from tests.oracle.build import package
from tests.oracle.jvm import java_command
from tests.property.schemas.test_avro import equal, names_of
from tests.property.schemas.test_protobuf import equal as same_message, row_of
from tests.support.protobuf_values import plain
from tests.support.registry_server import APICURIO, RegistryServer, registry_server
from tests.support.typed_topics import (
    ADDRESS,
    EVENTS,
    ORDERS,
    a_payment,
    an_event,
    an_order,
    payment_class,
    payment_files,
)
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_HERE = Path(__file__).parent
_COUNT = 20
Settings = dict[str, str]
_HEADERS: Settings = {"apicurio.registry.headers.enabled": "true"}
_GLOBAL: Settings = {"apicurio.registry.use-id": "globalId"}
_LONG: Settings = {
    "apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy8ByteIdHandler"
}
_JSON: Settings = {"apicurio.registry.avro.encoding": "JSON"}
_UNNAMED: Settings = {"apicurio.registry.serde.send-type-ref": "false"}
_INDEXES: Settings = {"apicurio.registry.serde.send-indexes": "true"}
_FOUND: Settings = {
    "apicurio.registry.auto-register": "false",
    "apicurio.registry.find-latest": "true",
}
_FORMS: dict[str, tuple[Settings, Framing]] = {
    "default": ({}, Framing.CONFLUENT),
    "global": (_GLOBAL, Framing.CONFLUENT),
    "long": (_LONG, Framing.APICURIO),
    "global-long": (_GLOBAL | _LONG, Framing.APICURIO),
    "headers": (_HEADERS, Framing.HEADER),
    "global-headers": (_GLOBAL | _HEADERS, Framing.HEADER),
}
BYTES = (b"", b"abcd", bytes(60))
# How Protobuf values name their message.
_NAMINGS: dict[str, Settings] = {
    "ref": {},
    "indexes": _UNNAMED | _INDEXES,
    "both": _INDEXES,
    "unnamed": _UNNAMED,
}


@dataclass(frozen=True)
class Job:
    """Values to write: of which kind, and what the writer needs to know."""

    name: str
    kind: str
    settings: Settings
    values: Sequence[Any]
    framing: Framing
    needs: Mapping[str, Any] = field(default_factory=dict)


def _forms(is_newest: bool) -> Sequence[tuple[str, tuple[Settings, Framing]]]:
    """Return all forms for the newest version of a schema, else that of the defaults."""
    return list(_FORMS.items())[: None if is_newest else 1]


def avro_jobs() -> Iterator[Job]:
    pick = random.Random(61)
    for version, schema in enumerate(ORDERS):
        named: dict[str, Any] = {}
        fastavro.parse_schema(ADDRESS, named)
        parsed = fastavro.parse_schema(schema, named)
        values = []
        for _ in range(_COUNT):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, an_order(pick, version))
            values.append(out.getvalue().hex())
        needs = {"schemas": [json.dumps(ADDRESS), json.dumps(schema)]}
        for form, (settings, framing) in _forms(version == len(ORDERS) - 1):
            yield Job(f"avro-{version}-{form}", "AVRO", settings, values, framing, needs)
        yield Job(f"avro-{version}-json", "AVRO", _JSON, values, Framing.CONFLUENT, needs)
        settings = _JSON | _HEADERS
        name = f"avro-{version}-json-headers"
        yield Job(name, "AVRO", settings, values, Framing.NOT_BINARY, needs)


def bytes_jobs() -> Iterator[Job]:
    values = [encoded_bytes(one).hex() for one in BYTES]
    for form, (settings, framing) in _FORMS.items():
        yield Job(f"bytes-{form}", "AVRO", settings, values, framing, {"schemas": ['"bytes"']})


def encoded_bytes(value: bytes) -> bytes:
    return bytes([2 * len(value)]) + value


def protobuf_jobs() -> Iterator[Job]:
    pick = random.Random(61)
    for version in range(2):
        files = descriptor_pb2.FileDescriptorSet(file=payment_files(version))
        needs = {"files": files.SerializeToString().hex(), "message": "Payment"}
        values = [a_payment(pick, version).SerializeToString().hex() for _ in range(_COUNT)]
        for form, (settings, framing) in _forms(version == 1):
            for naming, more in _NAMINGS.items():
                name = f"protobuf-{version}-{form}-{naming}"
                yield Job(name, "PROTOBUF", settings | more, values, framing, needs)


def json_jobs() -> Iterator[Job]:
    pick = random.Random(61)
    for version in range(2):
        values = [an_event(pick, version) for _ in range(_COUNT)]
        for form, (settings, framing) in _forms(version == 1):
            yield Job(f"json-{version}-{form}", "JSON", settings | _FOUND, values, framing)


JOBS = {one.name: one for one in (*avro_jobs(), *bytes_jobs(), *protobuf_jobs(), *json_jobs())}


@dataclass(frozen=True)
class Written:
    """What the serializers wrote, by job, and the registries with the ids of both kinds."""

    values: dict[str, list[bytes]]
    headers: dict[str, list[list[tuple[str, bytes]]]]
    by_content_id: Registry
    by_global_id: Registry

    def registry(self, name: str) -> Registry:
        return self.by_global_id if "-global" in name else self.by_content_id

    def log(self, name: str) -> bytes:
        return ks.build_batches(value=self.values[name], headers=self.headers[name])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    project = _HERE / "java-apicurio"
    package(project)
    class_path = f"{project}/target/oracle-apicurio.jar:{project}/target/lib/*"
    dump = tmp_path_factory.mktemp("registry") / "global.json"
    with registry_server() as server:
        for name, job in JOBS.items():
            if job.kind == "JSON":
                version = int(name.split("-")[1])
                server.register(f"{name}-value", "JSON", json.dumps(EVENTS[version]))
        writer = subprocess.run(
            java_command(class_path, "kafkascan.oracle.ApicurioWriter"),
            input="".join(_line(server, job) for job in JOBS.values()),
            capture_output=True, text=True, check=False, timeout=HANG_SECONDS,
        )  # fmt: skip
        assert writer.returncode == 0, writer.stderr[-3000:]
        found = dict(zip(JOBS, map(json.loads, writer.stdout.splitlines()), strict=True))
        dump.write_text(
            json.dumps([one.as_row() | {"id": one.global_id} for one in server.versions])
        )
        yield Written(
            {name: [bytes.fromhex(one["value"]) for one in rows] for name, rows in found.items()},
            {
                name: [[(key, bytes.fromhex(it)) for key, it in one["headers"]] for one in rows]
                for name, rows in found.items()
            },
            open_registry(server.url),
            open_registry(dump),
        )


def _line(server: RegistryServer, job: Job) -> str:
    settings = {
        "apicurio.registry.url": server.url + APICURIO,
        "apicurio.registry.auto-register": "true",
        **job.settings,
    }
    line = {"kind": job.kind, "topic": job.name, "settings": settings, "values": job.values}
    return json.dumps(line | dict(job.needs)) + "\n"


def jobs(kind: str) -> list[str]:
    found = [name for name, one in JOBS.items() if one.kind == kind and "-json" not in name]
    return [name for name in found if not name.startswith("bytes")]


@pytest.mark.parametrize("name", JOBS)
def test_prefixes_of_apicurio(written: Written, name: str) -> None:
    registry, framing = written.registry(name), JOBS[name].framing
    framed = FrameReader(registry).read(ks.read_records(written.log(name)))
    assert set(framed.framing.tolist()) == {framing}
    (row,) = set(framed.schema.tolist())
    if framing != Framing.NOT_BINARY:
        users = registry.users_of(framed.schemas[row])
        assert f"{name}-value" in {one.subject for one in users}


@pytest.mark.parametrize("name", jobs("AVRO"))
def test_avro_of_apicurio(written: Written, name: str) -> None:
    schema: Any = ORDERS[int(name.split("-")[1])]
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named)
    parsed = fastavro.parse_schema(schema, named)
    types = names_of(schema) | names_of(ADDRESS) | {"shop.Address": ADDRESS}
    reader = written.registry(name).reader(f"{name}-value")
    records = ks.read_records(written.log(name), value=reader)
    for data, found in zip(JOBS[name].values, records["value"], strict=True):
        expected = fastavro.schemaless_reader(io.BytesIO(bytes.fromhex(data)), parsed)
        assert equal(expected, found, schema, types), (expected, found)
    assert not len(records.problems)


@pytest.mark.parametrize("form", _FORMS)
def test_bytes_of_apicurio(written: Written, form: str) -> None:
    """Its serializers write a size before them; behind a prefix of 4 bytes, Confluent's do not."""
    name = f"bytes-{form}"
    size = 8 if "long" in form else 0 if "headers" in form else 4
    payloads = [one[size + (size > 0) :] for one in written.values[name]]
    assert payloads == [encoded_bytes(one) for one in BYTES]
    records = ks.read_records(written.log(name), value=written.registry(name))
    is_confluent = JOBS[name].framing == Framing.CONFLUENT
    assert records["value"].tolist() == (payloads if is_confluent else list(BYTES))
    assert ("SIZED_BYTES" in {one.symbol for one in records.problems}) == is_confluent


@pytest.mark.parametrize("name", [one for one in JOBS if "-json" in one])
def test_avro_in_the_json_encoding_is_a_problem(written: Written, name: str) -> None:
    reader = written.registry(name).reader(f"{name}-value")
    records = ks.read_records(written.log(name), value=reader)
    assert set(records["value"].tolist()) == {None}
    symbols = {one.symbol for one in records.problems}
    assert len(records.problems) == _COUNT
    assert ("headers" in name) == (symbols == {"NOT_BINARY"})


@pytest.mark.parametrize("name", jobs("PROTOBUF"))
def test_protobuf_of_apicurio(written: Written, name: str) -> None:
    """The schemas have several messages: of which one the values are, the reader has to say."""
    version = int(name.split("-")[1])
    subject = f"{name}-value"
    registry = written.registry(name)
    reader = registry.reader(subject, message="shop.Payment")
    records = ks.read_records(written.log(name), value=reader)
    rows = [row for chunk in records.typed["value"].chunks for row in plain(chunk)]
    for data, row in zip(JOBS[name].values, rows, strict=True):
        assert same_message(row_of(payment_class(version).FromString(bytes.fromhex(data))), row)
    assert not len(records.problems)


@pytest.mark.parametrize("name", [one for one in jobs("PROTOBUF") if "unnamed" not in one])
def test_other_messages_of_apicurio(written: Written, name: str) -> None:
    reader = written.registry(name).reader(f"{name}-value", message="shop.Other")
    records = ks.read_records(written.log(name), value=reader)
    assert set(records["value"].tolist()) == {None}
    assert {one.symbol for one in records.problems} == {"UNRESOLVED_VALUE"}


@pytest.mark.parametrize("name", jobs("JSON"))
def test_json_of_apicurio(written: Written, name: str) -> None:
    reader = written.registry(name).reader(f"{name}-value")
    records = ks.read_records(written.log(name), value=reader)
    names = EVENTS[int(name.split("-")[1])]["properties"]
    for value, found in zip(JOBS[name].values, records["value"], strict=True):
        assert found == {name: value.get(name) for name in names}
    assert not len(records.problems)
