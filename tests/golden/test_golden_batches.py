"""Segments of real brokers, compared with the committed output of Kafka's tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.compare import compare_segments
from tests.support.kafka_dump import (
    parse_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)

_GOLDEN = Path(__file__).parent
_MANIFEST = json.loads((_GOLDEN / "MANIFEST.json").read_text(encoding="utf-8"))
_RUNS = sorted(_MANIFEST["runs"])
_PARTITIONS = [
    pytest.param(directory, id=f"{run}-{directory.name}")
    for run in _RUNS
    for directory in sorted((_GOLDEN / run / "data").iterdir())
    if directory.is_dir()
]
_PARSERS: dict[str, Callable[[str], Sequence[object]]] = {
    ".index": parse_index,
    ".timeindex": parse_time_index,
    ".txnindex": parse_transaction_index,
    ".snapshot": parse_producer_snapshot,
}


def _described(log: Path) -> tuple[Path, str, str]:
    run = log.parents[2]
    dump = run / "dump" / log.parent.name / f"{log.name}.txt"
    fields = run / "fields" / log.parent.name / f"{log.name}.jsonl"
    return log, dump.read_text(encoding="utf-8"), fields.read_text(encoding="utf-8")


def _segments(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.suffix in {".log", ".checkpoint"}]


@pytest.mark.parametrize("run", _RUNS)
def test_files_match_the_manifest(run: str) -> None:
    """A missing, additional or changed golden file fails the test."""
    root = _GOLDEN / run
    found = {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }
    wanted = {name: facts["sha256"] for name, facts in _MANIFEST["runs"][run]["files"].items()}
    assert found == wanted


@pytest.mark.parametrize("directory", _PARTITIONS)
def test_every_field_of_every_batch(directory: Path) -> None:
    segments = _segments(directory)
    assert segments
    if any(path.stat().st_size for path in segments):
        compare_segments([_described(path) for path in segments])


@pytest.mark.parametrize("run", _RUNS)
def test_many_batches_are_compared(run: str) -> None:
    logs = [path for path in (_GOLDEN / run / "data").glob("*/*") if path in _segments(path.parent)]
    assert compare_segments([_described(path) for path in logs]) >= 15


@pytest.mark.parametrize("run", _RUNS)
def test_dumps_of_all_other_files_are_parsed(run: str) -> None:
    entries = 0
    for path in sorted((_GOLDEN / run / "data").glob("*/*")):
        parse = _PARSERS.get(path.suffix)
        if parse is not None:
            dump = _GOLDEN / run / "dump" / path.parent.name / f"{path.name}.txt"
            entries += len(parse(dump.read_text(encoding="utf-8")))
    assert entries > 0
