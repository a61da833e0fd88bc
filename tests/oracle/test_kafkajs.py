"""Batches of kafkajs, an independent writer."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.support.segments import T0
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

WRITER = Path(__file__).parent / "kafkajs"


def batches() -> list[dict[str, Any]]:
    """Return the records to write: plain and gzip, keys and values of all kinds."""
    rng = random.Random(61)

    def some_bytes() -> str | None:
        return rng.choice([None, "", rng.randbytes(rng.randrange(300)).hex()])

    found, offset = [], 0
    for number in range(60):
        records = [
            {
                "key": some_bytes(),
                "value": some_bytes(),
                "headers": {f"h\u00e4{i}": rng.randbytes(i).hex() for i in range(rng.randrange(4))},
            }
            for _ in range(rng.randrange(1, 40))
        ]
        found.append(
            {
                "baseOffset": offset,
                "firstTimestamp": T0 + 1000 * number,
                "compression": number % 2,
                "records": records,
            }
        )
        offset += len(records)
    return found


def test_what_kafkajs_writes(tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("needs Node.js and npm")
    shutil.copytree(WRITER, tmp_path, dirs_exist_ok=True)
    install = [npm, "install", "--no-audit", "--no-fund", "--silent"]
    installed = subprocess.run(
        install, cwd=tmp_path, check=False, capture_output=True, timeout=HANG_SECONDS
    )
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install kafkajs: {installed.stderr.decode()[-300:]}")
    wanted = batches()
    written = subprocess.run(
        [node, "write.js"], cwd=tmp_path, check=True, capture_output=True, timeout=HANG_SECONDS,
        input=json.dumps(wanted).encode(),
    ).stdout  # fmt: skip
    assert ks.verify_crcs(written, ks.scan_batches(written).batches).all()
    found = ks.read_records(written)
    expected = [
        (
            batch["baseOffset"] + index,
            batch["firstTimestamp"] + index,
            record["key"],
            record["value"],
            [(name.encode(), value) for name, value in record["headers"].items()],
        )
        for batch in wanted
        for index, record in enumerate(batch["records"])
    ]
    assert [
        (
            record.offset,
            record.timestamp,
            None if record.key is None else record.key.hex(),
            None if record.value is None else record.value.hex(),
            [(name, None if value is None else value.hex()) for name, value in record.headers],
        )
        for record in found
    ] == expected
    assert len(expected) > 500
