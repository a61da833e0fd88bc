"""Logs for the tests of Spark's side: folders as a broker leaves them, and their rows."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

from kafkascan.spark.files import list_files
from kafkascan.spark.options import Options
from kafkascan.spark.plan import plan
from kafkascan.spark.scan import scan_task
from kafkascan.spark.times import resolve_times
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, Rig

GOLDEN = Path(__file__).parents[1] / "golden"
DATA = GOLDEN / "kafka-4.4.0" / "data"
OLD_DATA = GOLDEN / "kafka-2.8.2" / "data"
KILLED_DATA = GOLDEN / "kafka-4.4.0-killed" / "data"

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def tasks(**options: Any) -> list[Any]:
    parsed = Options.parse(options)
    files = list_files(parsed)
    return plan(files, parsed, resolve_times(files, parsed))


def rows(**options: Any) -> list[dict[str, Any]]:
    """All rows, by the core alone."""
    parsed = Options.parse(options)
    return [
        row
        for task in tasks(**options)
        for batch in scan_task(task, parsed)
        for row in batch.to_pylist()
    ]


def multiset(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, found))


def segment_path(folder: Path, topic: str, partition: int = 0, base_offset: int = 0) -> Path:
    path = folder / f"{topic}-{partition}" / f"{base_offset:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def plain_batch(offset: int, count: int = 2, size: int = 20, **fields: int) -> bytes:
    """A batch of `count` records from `offset` on."""
    records = [
        RecordV2(b"k%d" % (offset + n), bytes([n % 251]) * size, offset_delta=n, timestamp_delta=n)
        for n in range(count)
    ]
    times = {"base_timestamp": T0 + offset, "max_timestamp": T0 + offset + count - 1}
    return batch_of(records, base_offset=offset, **(times | fields))


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """A control batch that ends a transaction."""
    record = RecordV2(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch_of(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
    )


def data(offset: int, producer_id: int, count: int = 1) -> bytes:
    """A batch of an open transaction."""
    return plain_batch(
        offset, count, producer_id=producer_id, producer_epoch=0, attributes=TRANSACTIONAL
    )


def damaged_log(batches: int = 12) -> Rig:
    """Plain batches, to be damaged one by one."""
    rig = Rig()
    for number in range(batches):
        rig.add(plain_batch(2 * number))
    return rig
