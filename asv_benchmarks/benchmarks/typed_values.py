"""Values with a schema into Arrow, beside other readers: 8 fields, one thread.

`python -m benchmarks.typed_values` prints CPU time. Upper bound: nobody decodes values faster than
their bytes are copied into one array. Of records on one and two threads it prints wall time.
"""

from __future__ import annotations

import importlib.util
import io
import json
import random
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import message_factory

import kafkascan as ks
from kafkascan.schemas import open_registry
from kafkascan.schemas.programs.avro_program import AvroProgram
from kafkascan.schemas.programs.avro_schema import parse_avro
from kafkascan.schemas.programs.program_runs import decode_values
from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
from kafkascan.schemas.programs.protobuf_schema import compile_protobuf

from .usage import Job, cpu_medians, show

VALUES = 200_000
_WALL_ROUNDS = 9
# Of the values, in the log that threads read: a part of the work is done by one of them.
_REPEATED = 10
ORDER = """
syntax = "proto3";
package bench;
enum Status { NEW = 0; PAID = 1; SENT = 2; }
message Order {
  int64 id = 1;
  string customer = 2;
  double amount = 3;
  int32 quantity = 4;
  bool express = 5;
  string country = 6;
  int64 created = 7;
  Status status = 8;
}
"""


AVRO: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"}, {"name": "quantity", "type": "int"},
        {"name": "express", "type": "boolean"}, {"name": "country", "type": ["null", "string"]},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "status", "type": {"type": "enum", "name": "Status",
                                    "symbols": ["NEW", "PAID", "SENT"]}},
    ],
}  # fmt: skip


class Avro:
    """Orders in Avro, each by itself, as in records; and as a container for others."""

    def __init__(self) -> None:
        self.schema = fastavro.parse_schema(AVRO)
        rows = [self._row(number) for number in range(VALUES)]
        self.values = [self._encoded(one) for one in rows]
        self.container = io.BytesIO()
        fastavro.writer(self.container, self.schema, rows, sync_interval=1 << 20)
        self.program = AvroProgram(parse_avro(json.dumps(AVRO)))
        self._first_step = self.program.add(parse_avro(json.dumps(AVRO)))
        self._data = np.frombuffer(b"".join(self.values), np.uint8)
        self._sizes = np.array([len(one) for one in self.values], np.int32)
        starts = np.cumsum(self._sizes) - self._sizes
        self._address = self._data.ctypes.data + starts.astype(np.uintp)

    @staticmethod
    def _row(number: int) -> dict[str, Any]:
        pick = random.Random(number)
        return {
            "id": 10**6 + number, "customer": f"customer-{pick.randrange(10**5)}",
            "amount": 100 * pick.random(), "quantity": pick.randrange(1, 200),
            "express": pick.random() < 0.5, "country": pick.choice([None, "FR", "JP", "US"]),
            "created": 1_700_000_000_000 + 37 * number,
            "status": pick.choice(["NEW", "PAID", "SENT"]),
        }  # fmt: skip

    def _encoded(self, row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()

    def decode(self) -> list[pa.Array]:
        first_step = np.full(VALUES, self._first_step, np.int32)
        nothing = np.empty(0, np.uint8)
        arrays, status = decode_values(
            self.program, self._address, self._sizes, first_step, nothing, _no_fault
        )
        assert not status.any()
        return arrays

    def jobs(self) -> dict[str, Job]:
        """Return what decodes the values, the bound first."""
        jobs: dict[str, Job] = {
            "copy of the bytes (bound)": self._data.copy,
            "kafkascan, into Arrow": self.decode,
            "fastavro, dicts": lambda: [
                fastavro.schemaless_reader(io.BytesIO(one), self.schema) for one in self.values
            ],
        }
        for name in ("polars_avro", "jetliner"):
            if importlib.util.find_spec(name):
                read = importlib.import_module(name).read_avro
                jobs[f"{name}, a container into Polars"] = partial(self._read_container, read)
        return jobs

    def _read_container(self, read: Callable[..., Any]) -> object:
        with tempfile.NamedTemporaryFile(suffix=".avro") as file:
            file.write(self.container.getvalue())
            file.flush()
            return read(file.name)


class Protobuf:
    """Orders, encoded."""

    def __init__(self) -> None:
        schema = compile_protobuf(ORDER, {})
        self.message = schema.messages[(0,)]
        self.program = ProtobufProgram(self.message)
        self.read_object = message_factory.GetMessageClass(self.message).FromString
        self.values = [self._value(number) for number in range(VALUES)]
        self.array = pa.array(self.values, pa.binary())
        _, ends, data = (np.frombuffer(one or b"", np.uint8) for one in self.array.buffers())
        self._data, ends = data, ends.view(np.int32)
        self._address = data.ctypes.data + ends[:VALUES].astype(np.uintp)
        self._sizes = np.diff(ends[: VALUES + 1])

    def _value(self, number: int) -> bytes:
        pick = random.Random(number)
        order = message_factory.GetMessageClass(self.message)(
            id=10**6 + number,
            customer=f"customer-{pick.randrange(10**5)}",
            amount=100 * pick.random(),
            quantity=pick.randrange(1, 200),
            express=pick.random() < 0.5,
            country=pick.choice(["DE", "FR", "JP", "US"]),
            created=1_700_000_000_000 + 37 * number,
            status=pick.randrange(3),
        )
        return order.SerializeToString()

    def decode(self) -> list[pa.Array]:
        first_step = np.full(VALUES, self.program.PLAIN, np.int32)
        nothing = np.empty(0, np.uint8)
        arrays, status = decode_values(
            self.program, self._address, self._sizes, first_step, nothing, _no_fault
        )
        assert not status.any()
        return arrays

    def jobs(self) -> dict[str, Job]:
        """Return what decodes the values, the bound first."""
        jobs: dict[str, Job] = {
            "copy of the bytes (bound)": self._data.copy,
            "kafkascan, into Arrow": self.decode,
            "protobuf, objects": lambda: [self.read_object(one) for one in self.values],
        }
        try:
            import ptars
        except ImportError:
            return jobs
        handler = ptars.HandlerPool([self.message.file]).get_for_message(self.message)
        jobs["ptars, array of bytes into Arrow"] = lambda: handler.array_to_record_batch(self.array)
        jobs["ptars, list of bytes into Arrow"] = lambda: handler.list_to_record_batch(self.values)
        return jobs


def thread_seconds(avro: Avro) -> dict[str, float]:
    """Return the least wall time of reading records with one and two threads."""
    with tempfile.TemporaryDirectory() as folder:
        row = {"subject": "orders-value", "version": 1, "id": 1, "schema": json.dumps(AVRO)}
        (Path(folder) / "registry.json").write_text(json.dumps([row]))
        registry = open_registry(Path(folder) / "registry.json").reader("orders-value")
    prefix = b"\0" + struct.pack(">i", 1)
    values = [prefix + one for one in avro.values] * _REPEATED
    log = bytes(ks.build_batches(value=values, max_records=1_000))
    jobs: dict[str, Job] = {
        f"read_records(value=registry, threads={threads})": partial(
            ks.read_records, log, columns=["offset", "value"], value=registry, threads=threads
        )
        for threads in (1, 2)
    }
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(_WALL_ROUNDS):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def _no_fault(position: int) -> Exception:
    return AssertionError(position)


class TypedValues:
    """The same for asv."""

    unit = "ns/record"
    timeout = 300

    def setup(self) -> None:
        self.protobuf, self.avro = Protobuf(), Avro()

    def track_avro(self) -> float:
        return cpu_medians({"": self.avro.decode})[""] / VALUES * 1e9

    def track_protobuf(self) -> float:
        return cpu_medians({"": self.protobuf.decode})[""] / VALUES * 1e9

    def track_avro_records_on_two_threads(self) -> float:
        one, two = thread_seconds(self.avro).values()
        return two / one

    track_avro_records_on_two_threads.unit = "of the wall time of one"  # type: ignore[attr-defined]

    def track_bytes_copied(self) -> float:
        copy = self.protobuf.jobs()["copy of the bytes (bound)"]
        return cpu_medians({"": copy})[""] / VALUES * 1e9


def main() -> None:
    """Print the figures of all readers."""
    avro = Avro()
    size = sum(map(len, avro.values)) / VALUES
    title = f"Avro values: {VALUES:,} of {size:.0f} bytes, 8 fields"
    show(title, cpu_medians(avro.jobs()), "ns/record", VALUES)
    records = VALUES * _REPEATED
    title = f"{records:,} records with these values, least wall time of {_WALL_ROUNDS}"
    show(title, thread_seconds(avro), "ns/record", records)
    protobuf = Protobuf()
    size = protobuf.array.nbytes / VALUES - 4
    title = f"Protobuf values: {VALUES:,} of {size:.0f} bytes, 8 fields"
    show(title, cpu_medians(protobuf.jobs()), "ns/record", VALUES)


if __name__ == "__main__":
    main()
