"""Damaged partitions."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from tests.support.logs import WrittenLog
from tests.support.records import RecordV2, batch_of
from tests.unit.recovery.damaged_partitions import FIRST_PART, SECOND_PART


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A partition of three segments, the second one torn, with wrong and missing side files."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    log = WrittenLog(random.Random(3)).write(200, list(range(20)))
    count = len(log.batches)
    parts = [log.segment(0, count // 2), log.segment(count // 2, -1), log.segment(-1)]
    for number, (base_offset, data) in enumerate(parts):
        torn = data[:-20] if number == 1 else data
        (folder / f"{base_offset:020}.log").write_bytes(torn)
    (folder / f"{0:020}.index").write_bytes(b"junk" * 6)
    (folder / f"{parts[1][0]:020}.timeindex").write_bytes(bytes(120))
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n77 1\n")
    (folder / f"{5:020}.snapshot").write_bytes(b"no snapshot")
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder


@pytest.fixture
def overflowing(tmp_path: Path) -> Path:
    """A partition as a broker before 1.1 left it (KAFKA-6264), and a segment after it."""
    folder = tmp_path / "data" / "old-0"
    folder.mkdir(parents=True)

    def batches(first: int, count: int) -> bytes:
        return b"".join(
            batch_of([RecordV2(value=bytes(200))], base_offset=first + number)
            for number in range(count)
        )

    log = folder / f"{FIRST_PART:020}.log"
    log.write_bytes(batches(FIRST_PART, 40) + batches(SECOND_PART, 60))
    os.utime(log, (1_500_000_000, 1_500_000_000))
    (folder / f"{SECOND_PART + 60:020}.log").write_bytes(batches(SECOND_PART + 60, 3))
    for path in list(folder.glob("*.log")):
        path.with_suffix(".index").touch()
    (folder / f"{FIRST_PART:020}.txnindex").write_bytes(
        struct.pack(">hqqqq", 0, 1, FIRST_PART, FIRST_PART + 1, FIRST_PART)
    )
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    return folder
