"""Values that kafkajs's registry client encoded are read back, with a registry that is running."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.schemas import Registry, open_registry
from tests.support.protobuf_values import plain
from tests.support.registry_server import registry_server
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

WRITER = Path(__file__).parent / "kafkajs-registry"
_COUNT = 40

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [
    {"name": "street", "type": "string"},
]}  # fmt: skip
ORDERS = (
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ]},
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "weights", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]},
         "default": "NEW"},
        {"name": "address", "type": ["null", "shop.Address"], "default": None},
    ]},
)  # fmt: skip
PAYMENT = """syntax = "proto3"; package shop;
message Payment {
  message Part { sint32 number = 1; string name = 2; }
  int32 id = 1; string card = 2; double amount = 3; repeated int32 codes = 4;
  repeated Part parts = 5; optional bool done = 6; map<string, int32> counts = 7;
}"""
TWO_MESSAGES = """syntax = "proto3"; package shop;
message First { int32 id = 1; } message Second { int32 id = 1; string name = 2; }"""
EVENT = {"type": "object", "properties": {
    "id": {"type": "integer"}, "name": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}},
}}  # fmt: skip


def an_order(pick: random.Random, version: int) -> dict[str, Any]:
    value = {
        "id": pick.randrange(-(2**31), 2**31), "note": pick.choice([None, "", "Zoë 客"]),
        "weights": {f"k{one}": pick.random() for one in range(pick.randrange(3))},
        "tags": ["a", "ü"][: pick.randrange(3)], "state": pick.choice(["NEW", "SENT"]),
        "address": pick.choice([None, {"street": "Lane 1"}]),
    }  # fmt: skip
    return {one["name"]: value[one["name"]] for one in ORDERS[version]["fields"]}


def a_payment(pick: random.Random) -> dict[str, Any]:
    """Return a message; of some, the first field is not the first one that has a value."""
    value = {
        "id": pick.randrange(-(2**31), 2**31), "card": pick.choice(["visa", "ü"]),
        "amount": pick.random(), "codes": [7, -1, 300][: pick.randrange(1, 4)],
        "parts": [{"number": -1, "name": "x"}, {"number": 5, "name": ""}][: pick.randrange(1, 3)],
        "done": True, "counts": {"k": 1},
    }  # fmt: skip
    return {name: one for name, one in value.items() if pick.random() < 0.6}


def payment_row(value: dict[str, Any]) -> dict[str, Any]:
    missing = {"id": 0, "card": "", "amount": 0.0, "codes": [], "parts": [], "done": None,
               "counts": {}}  # fmt: skip
    return missing | value


def an_event(pick: random.Random) -> dict[str, Any]:
    value = {"id": pick.randrange(2**40), "name": pick.choice(["", "ü\n"]), "tags": ["a"]}
    return {name: one for name, one in value.items() if pick.random() < 0.7}


def jobs() -> list[dict[str, Any]]:
    """Return what the program is to encode."""
    pick = random.Random(61)
    reference = {"name": "shop.Address", "subject": "address", "version": 1}
    orders = [
        {"type": "AVRO", "subject": "orders-value", "schema": json.dumps(schema),
         "references": [reference] * number,
         "values": [an_order(pick, number) for _ in range(_COUNT)]}
        for number, schema in enumerate(ORDERS)
    ]  # fmt: skip
    address = {"type": "AVRO", "subject": "address", "schema": json.dumps(ADDRESS), "values": []}
    second = {"PROTOBUF": {"messageName": "Second"}}
    return [
        address,
        *orders,
        {"type": "PROTOBUF", "subject": "payments-value", "schema": PAYMENT,
         "values": [{}, *(a_payment(pick) for _ in range(_COUNT))]},
        {"type": "PROTOBUF", "subject": "two-value", "schema": TWO_MESSAGES, "options": second,
         "values": [{"id": 7, "name": "x"}]},
        {"type": "JSON", "subject": "events-value", "schema": json.dumps(EVENT),
         "values": [an_event(pick) for _ in range(_COUNT)]},
    ]  # fmt: skip


@dataclass(frozen=True)
class Encoded:
    """What was encoded by subject, as values and as the program's own decoder reads them."""

    values: dict[str, list[Any]]
    logs: dict[str, bytes]
    decoded: dict[str, list[Any]]
    registry: Registry


@pytest.fixture(scope="module", params=[True, False])
def encoded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encoded]:
    """Encode everything, with registries that list all of their schemas and that do not."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("needs Node.js and npm")
    folder = tmp_path_factory.mktemp("kafkajs")
    shutil.copytree(WRITER, folder, dirs_exist_ok=True)
    install = [npm, "install", "--no-audit", "--no-fund", "--silent"]
    installed = subprocess.run(
        install, cwd=folder, check=False, capture_output=True, timeout=HANG_SECONDS
    )
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install the client: {installed.stderr.decode()[-300:]}")
    wanted = jobs()
    with registry_server(lists_schemas=request.param) as server:
        program = subprocess.run(
            [node, "write.js"], cwd=folder, check=False, capture_output=True, text=True,
            timeout=HANG_SECONDS, input=json.dumps({"host": server.url, "jobs": wanted}),
        )  # fmt: skip
        assert program.returncode == 0, program.stderr[-3000:]
        found: dict[str, list[Any]] = {}
        values: dict[str, list[Any]] = {}
        for job, rows in zip(wanted, json.loads(program.stdout), strict=True):
            found.setdefault(job["subject"], []).extend(rows)
            values.setdefault(job["subject"], []).extend(job["values"])
        logs = {
            subject: ks.build_batches(value=[bytes.fromhex(one["value"]) for one in rows])
            for subject, rows in found.items()
        }
        decoded = {subject: [one["decoded"] for one in rows] for subject, rows in found.items()}
        yield Encoded(values, logs, decoded, open_registry(server.url))


def test_avro_of_kafkajs(encoded: Encoded) -> None:
    """The values of both versions are read into the columns of the newest one."""
    assert encoded.decoded["orders-value"] == encoded.values["orders-value"]
    reader = encoded.registry.reader("orders-value")
    records = ks.read_records(encoded.logs["orders-value"], value=reader)
    missing = {"weights": {}, "tags": [], "state": "NEW", "address": None}
    rows = [row | {"weights": dict(row["weights"])} for row in records["value"]]
    assert rows == [missing | one for one in encoded.values["orders-value"]]
    assert not len(records.problems)


def test_protobuf_of_kafkajs(encoded: Encoded) -> None:
    """It writes no indexes of messages, and an empty message has no bytes at all."""
    reader = encoded.registry.reader("payments-value")
    records = ks.read_records(encoded.logs["payments-value"], value=reader)
    rows = [row for chunk in records.typed["value"].chunks for row in plain(chunk)]
    assert rows == [payment_row(one) for one in encoded.values["payments-value"]]
    assert not len(records.problems)


def test_which_message_of_several_has_to_be_said(encoded: Encoded) -> None:
    log, registry = encoded.logs["two-value"], encoded.registry
    by_records = ks.read_records(log, value=registry.reader("two-value"))
    assert by_records["value"].tolist() == [None]
    (problem,) = by_records.problems
    assert problem.symbol == "UNNAMED_MESSAGE"
    second = ks.read_records(log, value=registry.reader("two-value", message="shop.Second"))
    assert second["value"].tolist() == encoded.values["two-value"]
    assert not len(second.problems)


def test_json_of_kafkajs(encoded: Encoded) -> None:
    assert encoded.decoded["events-value"] == encoded.values["events-value"]
    reader = encoded.registry.reader("events-value")
    records = ks.read_records(encoded.logs["events-value"], value=reader)
    names = EVENT["properties"]
    assert records["value"].tolist() == [
        {name: one.get(name) for name in names} for one in encoded.values["events-value"]
    ]
    assert not len(records.problems)


def test_a_running_registry(encoded: Encoded) -> None:
    registry = encoded.registry
    assert registry.is_complete
    assert registry.subjects == sorted(encoded.logs)
    newest = registry.newest("orders-value")
    assert newest is not None
    assert list(registry.referenced(newest)) == ["shop.Address"]
