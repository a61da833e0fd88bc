"""Logs in folders as brokers write them, and their rows by a plain scan."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from kafkascan.spark.jobs.export_tasks import ExportTarget, write_outputs
from kafkascan.spark.jobs.output_folders import OutputFolder
from kafkascan.spark.jobs.planned_outputs import plan_catalog, plan_exports
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.planning.read_plan import plan_read, resolve_times
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.rows import record_rows, task_scan
from kafkascan.spark.rows.task_scan import scan_task
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, Rig

DATA = GOLDEN / "kafka-4.4.0" / "data"
OLD_DATA = GOLDEN / "kafka-2.8.2" / "data"
KILLED_DATA = GOLDEN / "kafka-4.4.0-killed" / "data"

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def tasks(**options: Any) -> list[Any]:
    parsed = Options.parse(options)
    logs = list_logs(parsed)
    return plan(logs, parsed, resolve_times(logs, parsed))


def record_batches(**options: Any) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a plain scan, without Spark."""
    parsed = Options.parse(options)
    for task in tasks(**options):
        yield from scan_task(task, parsed)


def rows(**options: Any) -> list[dict[str, Any]]:
    """All rows of a plain scan, without Spark."""
    return [row for batch in record_batches(**options) for row in batch.to_pylist()]


def write_planned(folder: OutputFolder, codec: str = "zstd", **options: Any) -> list[str]:
    """Write the outputs of an export, or a catalog for the view batches, without Spark."""
    parsed = Options.parse(options)
    plan_outputs = plan_exports if parsed.view == "records" else plan_catalog
    target = ExportTarget(folder, parsed, codec)
    return [
        output
        for task in plan_outputs(plan_read(parsed), parsed, codec)
        for batch in write_outputs(task, target)
        for output in batch["output"].to_pylist()
    ]


def cut_batches(monkeypatch: pytest.MonkeyPatch, row_count: int, byte_count: int = 1 << 22) -> None:
    """Let scans return small record batches."""
    for module in (record_rows, task_scan):
        monkeypatch.setattr(module, "BATCH_ROWS", row_count)
    monkeypatch.setattr(record_rows, "_BATCH_BYTES", byte_count)


def s3_of(store: dict[str, Any]) -> Any:
    """Another library's client of the fixture `store`."""
    keys = {"key": store["aws_access_key_id"], "secret": store["aws_secret_access_key"]}
    return pytest.importorskip("s3fs").S3FileSystem(endpoint_url=store["endpoint"], **keys)


def multiset(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, found))


VIEWS: dict[str, dict[str, Any]] = {
    "records": {"includeHeaders": True, "maxPartitionBytes": 150_000},
    "batches": {"verify": True},
}
"""Options of the views that drivers in other processes read."""


def require_views(found: dict[str, Any]) -> None:
    """Compare what a driver found in the views of the golden logs with the rows of a plain scan."""
    for view, options in VIEWS.items():
        expected = dict(multiset(rows(path=str(DATA), view=view, **options)))
        assert found[f"{view} by source"] == expected
        assert found[f"{view} by frame"] == expected
        assert len(expected) > 300
    assert found["verify"]["files"] == 42
    assert found["verify"]["bad_checksums"] == 0


def fleet_of(folder: Path) -> Path:
    """A folder with the data dirs of two brokers, and other folders."""
    for name in ("east/broker-1", "east/broker-2"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(DATA)
    (folder / "east" / "lost+found").mkdir()
    (folder / "notes").mkdir()
    (folder / "notes" / "readme.txt").write_text("nothing")
    return folder


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


def marker(offset: int, producer_id: int, kind: int, **fields: int) -> bytes:
    """A control batch that ends a transaction."""
    record = RecordV2(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch_of(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
        **fields,
    )


def data(offset: int, producer_id: int, count: int = 1, **fields: int) -> bytes:
    """A batch of an open transaction."""
    given = {"producer_id": producer_id, "producer_epoch": 0, "attributes": TRANSACTIONAL}
    return plain_batch(offset, count, **(given | fields))


def damaged_log(batches: int = 12) -> Rig:
    """A log of plain batches, for tests that damage it."""
    rig = Rig()
    for number in range(batches):
        rig.add(plain_batch(2 * number))
    return rig
