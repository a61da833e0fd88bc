"""No quadratic time: a partition, segment or batch costs the same among 16 times as many."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import run
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.slow

# Work that is quadratic takes 16 times as long for each item; a busy machine, less than this.
_MOST_GROWTH, _TRIES = 3.0, 2

Call = Callable[[Path], object]


def _command(*arguments: str) -> Call:
    return lambda path: run(*arguments, path)


def _each(path: Path) -> None:
    for _ in ks.read_records(path):
        pass


def _by_index(path: Path) -> None:
    table = ks.read_records(path)
    for index in range(0, len(table), 8):
        table[index]


def _salvage(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parents[1]) as folder:
        ks.salvage(path.parent, Path(folder, "out"))


def _segments(path: Path) -> None:
    for _ in ks.open_log_dir(path).log_segments():
        pass


_OF_LOGS: dict[str, Call] = {
    "scan_log_dir": ks.scan_log_dir,
    "count_records": ks.count_records,
    "read_transactions": ks.read_transactions,
    "read_producers": ks.read_producers,
    "audit": ks.audit,
    "recover": ks.recover,
    "LogDir.log_segments": _segments,
    "diff_logs": lambda path: ks.diff_logs(path, path),
    **{verb: _command(verb) for verb in ("info", "verify", "count", "batches", "records", "txns")},
    "index check": _command("index", "check"),
}
_OF_DATA_DIRS: dict[str, Call] = {"advise": ks.advise, "report": ks.build_report}
_OF_ONE_LOG: dict[str, Call] = {"read_records": ks.read_records}
_OF_SEGMENTS: dict[str, Call] = {
    "scan_batches": ks.scan_batches,
    "iteration": _each,
    "index": _by_index,
    "to_arrow": lambda path: ks.read_records(path).to_arrow(),
    "to_pandas": lambda path: ks.read_records(path).to_pandas(),
    "verify_crcs": lambda path: ks.verify_crcs(path, ks.scan_batches(path).batches),
    **{verb: _command(verb) for verb in ("info", "batches", "records", "verify")},
    "JSON lines": _command("records", "--format", "jsonl"),
}


def _batch(offset: int) -> bytes:
    record = RecordV2(key=b"key", value=b"v" * 90)
    return batch_of([record], base_offset=offset, producer_id=offset % 50, base_sequence=0)


def _partitions(path: Path, count: int) -> Path:
    for number in range(count):
        _one_log(path / f"topic-{number}", range(2), 1)
    return path


def _one_log(folder: Path, offsets: range, batches: int) -> Path:
    folder.mkdir(parents=True)
    for base in offsets[::batches]:
        data = b"".join(map(_batch, range(base, base + batches)))
        (folder / f"{base:020}.log").write_bytes(data)
    return folder


def _segments_of_one(path: Path, count: int) -> Path:
    return _one_log(path / "topic-0", range(count), 1)


def _batches_of_one(path: Path, count: int) -> Path:
    return _one_log(path / "topic-0", range(count), count) / f"{0:020}.log"


def _damaged(path: Path, count: int) -> Path:
    """Write a segment in which every second batch has a wrong checksum."""
    log = _batches_of_one(path, count)
    data, size = bytearray(log.read_bytes()), len(_batch(0))
    data[size - 1 :: 2 * size] = bytes(len(data[size - 1 :: 2 * size]))
    log.write_bytes(data)
    return log


_SHAPES: dict[str, tuple[Callable[[Path, int], Path], int, dict[str, Call]]] = {
    "partitions": (_partitions, 25, _OF_LOGS | _OF_DATA_DIRS),
    "many partitions": (_partitions, 500, {"LogDir.log_segments": _segments}),
    "segments": (_segments_of_one, 40, _OF_LOGS | _OF_ONE_LOG),
    "batches": (_batches_of_one, 1000, _OF_SEGMENTS),
    "damaged batches": (_damaged, 400, {"salvage": _salvage, "audit": ks.audit}),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    folder = tmp_path_factory.mktemp("inputs")

    @functools.cache
    def build(shape: str, count: int) -> Path:
        return _SHAPES[shape][0](folder / shape / str(count), count)

    return build


@pytest.mark.parametrize(
    ("shape", "name"),
    [(shape, name) for shape, (_, _, calls) in _SHAPES.items() for name in calls],
)
def test_growth(shape: str, name: str, inputs: Callable[[str, int], Path]) -> None:
    _, few, calls = _SHAPES[shape]
    seconds = []
    for count in (few, 16 * few):
        path = inputs(shape, count)
        calls[name](path)  # imports
        seconds.append(min(_seconds(calls[name], path) for _ in range(_TRIES)) / count)
    assert seconds[1] < _MOST_GROWTH * seconds[0]


def _seconds(call: Call, path: Path) -> float:
    start = time.process_time()
    call(path)
    return time.process_time() - start
