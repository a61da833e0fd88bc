"""JSON values of eight fields into typed columns, beside other readers of JSON."""

from __future__ import annotations

import importlib.util
import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from kafkascan.schemas.programs.json_program import JsonProgram
from kafkascan.schemas.programs.json_schema import parse_json_schema
from kafkascan.schemas.programs.program_runs import decode_values

from .scan import best_of

COUNT = 100_000
KAFKASCAN = "kafkascan, into columns"
_KINDS = {
    "id": "integer", "customer": "string", "amount": "number", "count": "integer",
    "paid": "boolean", "note": "string", "time": "integer", "status": "string",
}  # fmt: skip
_SCHEMA = {"properties": {name: {"type": kind} for name, kind in _KINDS.items()}}


def values(count: int = COUNT) -> list[bytes]:
    """Return orders."""
    pick = random.Random(1)
    return [
        json.dumps({
            "id": pick.randrange(1 << 40), "customer": f"customer-{pick.randrange(10**6)}",
            "amount": round(pick.random() * 1000, 2), "count": pick.randrange(100),
            "paid": pick.random() < 0.5, "note": pick.choice([None, "a note of some words"]),
            "time": 1_700_000_000_000 + pick.randrange(10**9),
            "status": pick.choice(["NEW", "PAID", "SENT"]),
        }).encode()
        for _ in range(count)
    ]  # fmt: skip


def contenders(given: list[bytes]) -> dict[str, Callable[[], Any]]:
    """Return the readers that are installed, on the same values."""
    program = JsonProgram(parse_json_schema(json.dumps(_SCHEMA)))
    data = np.frombuffer(b"".join(given), np.uint8)
    sizes = np.array([len(one) for one in given], np.int32)
    address = (data.ctypes.data + np.cumsum(sizes) - sizes).astype(np.uintp)
    steps = np.full(len(given), program.first_step, np.int32)
    found: dict[str, Callable[[], Any]] = {
        KAFKASCAN: lambda: decode_values(
            program, address, sizes, steps, data[:0], lambda position: OSError(position)
        )
    }
    if importlib.util.find_spec("pyarrow"):
        import pyarrow.json

        lines = b"\n".join(given)
        options = pyarrow.json.ReadOptions(use_threads=False)
        found["pyarrow.json, lines into columns"] = lambda: pyarrow.json.read_json(
            io.BytesIO(lines), options
        )
    if importlib.util.find_spec("msgspec"):
        import msgspec

        order = msgspec.defstruct(
            "Order", [(name, Any if name == "note" else {"integer": int, "number": float,
                       "boolean": bool, "string": str}[kind]) for name, kind in _KINDS.items()]
        )  # fmt: skip
        decode = msgspec.json.Decoder(order).decode
        found["msgspec, objects"] = lambda: [decode(one) for one in given]
    if importlib.util.find_spec("orjson"):
        import orjson

        found["orjson, dicts"] = lambda: [orjson.loads(one) for one in given]
    found["json, dicts"] = lambda: [json.loads(one) for one in given]
    return found


class JsonValues:
    unit = "ns/record"

    def setup(self) -> None:
        given = values()
        assert decode_is_complete(given)
        self.decode = contenders(given)[KAFKASCAN]

    def track_columns(self) -> float:
        return best_of(self.decode) / COUNT * 1e9


def decode_is_complete(given: list[bytes]) -> bool:
    """Return whether every value is decoded to what `json` reads."""
    arrays, status = contenders(given)[KAFKASCAN]()
    rows = [one for array in arrays for one in array.to_pylist()]
    return not status.any() and rows == [json.loads(one) for one in given]
