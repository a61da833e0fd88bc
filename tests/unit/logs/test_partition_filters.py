"""The arguments ``topics`` and ``partitions`` of functions that read a data directory."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.logs.log_dir import LogDir
from tests.support.partitions import HealthyPartition

Read = Callable[..., Any]


def _placed(table: Any) -> set[tuple[str, int]]:
    return {(row["topic"], row["partition"]) for row in table.rows()}


def _scanned(place: Any, **wanted: Any) -> set[tuple[str, int]]:
    found = ks.scan_log_dir(place, **wanted)
    return {(one.topic or "", one.partition or 0) for one, _ in found.segments}


def _compared(place: Any, **wanted: Any) -> set[tuple[str, int]]:
    found = ks.diff_logs(place, place, **wanted)
    return {(one.topic or "", one.partition or 0) for one in found.partitions}


def _frame(place: Any, **wanted: Any) -> set[tuple[str, int]]:
    frame = ks.polars.scan_records(place, columns=["topic", "partition"], **wanted).collect()
    return set(frame.unique().rows())


READERS: dict[str, Callable[..., set[tuple[str, int]]]] = {
    "count_records": lambda *places, **wanted: _placed(ks.count_records(*places, **wanted)),
    "read_transactions": lambda place, **wanted: {
        (log.partition.topic or "", log.partition.partition or 0)
        for log in ks.read_transactions(place, **wanted).logs
    },
    "scan_log_dir": _scanned,
    "read_fingerprints": lambda place, **wanted: {
        one.key for one in ks.analysis.read_fingerprints(place, **wanted).logs
    },
    "diff_logs": _compared,
    "salvage": lambda place, **wanted: {
        (one.topic or "", one.partition or 0) for one in ks.salvage(place, **wanted).partitions
    },
    "scan_records": _frame,
}
ALL = {("orders", 0), ("orders", 1), ("payments", 0)}
WANTED: list[tuple[dict[str, Any], set[tuple[str, int]]]] = [
    ({}, ALL),
    ({"topics": ["orders"]}, {("orders", 0), ("orders", 1)}),
    ({"topics": {"orders", "other"}, "partitions": [1]}, {("orders", 1)}),
    ({"partitions": range(1)}, {("orders", 0), ("payments", 0)}),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for topic, number in ALL:
        HealthyPartition(tmp_path / "data" / f"{topic}-{number}", segments=2).write()
    return tmp_path / "data"


@pytest.mark.parametrize(("wanted", "expected"), WANTED)
@pytest.mark.parametrize("name", READERS)
def test_logs_that_are_read(
    data: Path, name: str, wanted: dict[str, Any], expected: set[tuple[str, int]]
) -> None:
    for place in (data, ks.open_log_dir(data), f"file://{data}"):
        kinds = {"scan_records": object, "salvage": Path}
        if isinstance(place, kinds.get(name, (Path, LogDir))):
            assert READERS[name](place, **wanted) == expected
    with tarfile.open(data.parent / "data.tar", "w") as archive:
        archive.add(data, "data")
    assert READERS[name](data.parent / "data.tar", **wanted) == expected


@pytest.mark.parametrize(
    "read",
    [ks.audit, ks.advise, ks.read_producers, ks.build_report, *READERS.values()],
    ids=["audit", "advise", "read_producers", "build_report", *READERS],
)
def test_arguments(data: Path, read: Read) -> None:
    for wanted in ({"topics": ["other"]}, {"topics": []}, {"partitions": [7]}):
        with pytest.raises(NoLogsError, match=r"no partitions of"):
            read(data, **wanted)
    with pytest.raises(TypeError, match="topics must be a collection of str"):
        read(data, topics="orders")
    with pytest.raises(TypeError, match="partitions must be a collection of int"):
        read(data, partitions=["0"])


def test_other_results(data: Path) -> None:
    wanted = {"topics": ["orders"], "partitions": [1]}
    assert ks.audit(data, **wanted).batches == ks.audit(data / "orders-1").batches  # type: ignore[arg-type]
    assert "payments" not in ks.build_report(data, **wanted).html  # type: ignore[arg-type]
    (advice,) = ks.advise(data, choices=["gzip"], **wanted).rows()  # type: ignore[arg-type]
    assert advice["topic"] == "orders"
    assert len(ks.read_producers(data, **wanted).rows()) == len(  # type: ignore[arg-type]
        ks.read_producers(data / "orders-1").rows()
    )


def test_fingerprints_of_a_file(data: Path, tmp_path: Path) -> None:
    saved = tmp_path / "prints.parquet"
    ks.analysis.read_fingerprints(data).save(saved)
    found = ks.analysis.read_fingerprints(saved, topics=["payments"])
    assert [one.key for one in found.logs] == [("payments", 0)]
    with pytest.raises(NoLogsError, match="no partitions of other here"):
        ks.analysis.read_fingerprints(saved, topics=["other"])


def test_one_log(data: Path) -> None:
    log = ks.open_log_dir(data / "orders-1").partitions[0]
    assert len(ks.count_records(log, topics=["orders"])) == 1
    with pytest.raises(NoLogsError):
        ks.count_records(log, topics=["payments"])
    segment = next((data / "orders-1").glob("*.log"))
    for source in (segment, segment.read_bytes()):
        with pytest.raises(ValueError, match="logs of a directory or an archive"):
            ks.count_records(source, topics=["orders"])
