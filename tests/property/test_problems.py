"""
Every answer about a damaged log equals that about the intact one, or says that it does not.

For each function and command: if the answer differs, it raises, or its problems are not empty and
its exit code is not 0. `_unseen` lists what nobody can see, each with its reason.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.broker_state.markers import read_control_rows
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.table import AnyTable
from tests.support.command_line import run
from tests.support.examples import seeds
from tests.support.logs import WrittenLog
from tests.support.records import RecordV2, batch_of
from tests.support.segments import message_v0, message_v1

Segments = dict[int, bytes]
SEGMENTS, BATCHES = 3, 8


def _numbered(batch: Callable[[int], bytes], step: int) -> Segments:
    """Return segments of batches that take their first offset."""
    segments = {}
    for number in range(SEGMENTS):
        base = number * BATCHES * step
        offsets = range(base, base + BATCHES * step, step)
        segments[base] = b"".join(map(batch, offsets))
    return segments


def _records(base_offset: int) -> bytes:
    values = [RecordV2(value=b"v" * 30, offset_delta=delta) for delta in range(3)]
    return batch_of(values, base_offset=base_offset)


def _compressed(base_offset: int, magic: int = 2) -> bytes:
    builder = ks.BatchBuilder(magic=magic, compression_type="gzip", base_offset=base_offset)
    for number in range(3):
        builder.append(1_714_000_000_000 + number, b"k%d" % number, b"v" * 200)
    return builder.build()


def _transactions() -> Segments:
    written = WrittenLog(random.Random(7)).write(SEGMENTS * BATCHES, [1, 2, 3])
    size = len(written.batches) // SEGMENTS
    bounds = [0, size, 2 * size, len(written.batches)]
    return dict(written.segment(first, stop) for first, stop in itertools.pairwise(bounds))


LOGS: dict[str, Segments] = {
    "records": _numbered(_records, 3),
    "compressed": _numbered(_compressed, 3),
    "transactions": _transactions(),
    "compressed, magic 1": _numbered(functools.partial(_compressed, magic=1), 3),
    "magic 1": _numbered(lambda offset: message_v1(b"k", b"v" * 40, offset=offset), 1),
    "magic 0": _numbered(lambda offset: message_v0(b"k", b"v" * 40, offset=offset), 1),
}


# ---- answers ---------------------------------------------------------------------------------


def _rows(table: AnyTable) -> tuple[object, bool]:
    """Return the rows of a table, and whether it names problems."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ks.tables.IncompleteTableWarning)
        timed = ("compress_mb_per_s", "decompress_mb_per_s", "age_ms", "age_at")
        rows = [{k: v for k, v in row.items() if k not in timed} for row in table.rows()]
    return rows, len(table.problems) > 0


def _iterated(path: Path) -> tuple[object, bool]:
    tables = list(ks.iter_records(path / "orders-0", verify=True, on_corrupt="stop"))
    rows = [row for table in tables for row in table.rows()]
    return rows, any(len(table.problems) for table in tables)


def _queried(path: Path) -> tuple[object, bool]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ks.tables.IncompleteTableWarning)
        rows = ks.polars.scan_records(path).collect().rows()
    return rows, len(warned) > 0


def _diffed(path: Path, intact: Path) -> tuple[object, bool]:
    found = ks.diff_logs(intact, path)
    return found.rows(), len(found.problems) > 0


def _all_of(records: ks.RecordTable) -> NDArray[np.bool_]:
    return np.ones(len(records), np.bool_)


def _rewritten(rewrite: Callable[..., AnyTable], path: Path, **options: Any) -> tuple[object, bool]:
    with tempfile.TemporaryDirectory() as folder:
        found = rewrite(path / "orders-0", Path(folder, "new"), **options)
    named = [one for one in found.problems if one.symbol != "NOTHING_REMOVED"]
    of_path = ("path", "target")
    rows = [{k: v for k, v in row.items() if k not in of_path} for row in found.rows()]
    return rows, len(named) > 0


def _recovered(path: Path) -> tuple[object, bool]:
    found = ks.recover(path)
    changes = [one for log in found.partitions for one in log.changes]
    return found.rows(), len(found.problems) > 0 or any(one.shortens_log for one in changes)


def _salvaged(path: Path) -> tuple[object, bool]:
    """Return the records of the copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "orders-0")
        found = ks.salvage(path / "orders-0", copy)
        rows = ks.read_records(copy, on_corrupt="stop").rows() if copy.exists() else []
    return rows, len(found.problems) > 0


def _numbered_times(batch: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    """Return rows with numbers as times: `datetime` does not have all times of damaged headers."""
    columns = [
        one.cast("int64") if pyarrow.types.is_timestamp(one.type) else one for one in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()


def _of_spark(view: str, path: Path) -> tuple[object, bool]:
    """Return the rows of Spark's tasks; those without errors are rows of the log."""
    error = "_corrupt_record" if view == "records" else "error"
    options = Options.parse({"path": str(path), "view": view, "mode": "PERMISSIVE"})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ks.tables.IncompleteTableWarning)
        tasks = plan_read(options)
    batches = [batch for task in tasks for batch in scan_task(task, options)]
    rows = [row for batch in batches for row in _numbered_times(batch)]
    for row in rows:
        row.pop("modified", None), row.pop("path", None)
    is_warned = any(row.get(error) is not None or row.get("trailing_bytes") for row in rows)
    return rows, len(warned) > 0 or is_warned


FUNCTIONS: dict[str, Callable[[Path, Path], tuple[object, bool]]] = {
    "count_records": lambda path, _: _rows(ks.count_records(path)),
    "count_records deep": lambda path, _: _rows(ks.count_records(path, deep=True)),
    "read_transactions": lambda path, _: _rows(ks.read_transactions(path)),
    "read_producers": lambda path, _: _rows(ks.read_producers(path)),
    "advise": lambda path, _: _rows(ks.advise(path, choices=["none"], sample=1000)),
    "scan_log_dir": lambda path, _: _rows(ks.scan_log_dir(path)),
    "read_fingerprints": lambda path, _: _rows(ks.analysis.read_fingerprints(path)),
    "diff_logs": _diffed,
    "read_records": lambda path, _: _rows(ks.read_records(path / "orders-0", verify=True)),
    "read_records on": lambda path, _: _rows(
        ks.read_records(path / "orders-0", verify=True, on_corrupt="stop")
    ),
    "read_committed": lambda path, _: _rows(
        ks.read_records(path / "orders-0", verify=True, isolation="read_committed")
    ),
    "iter_records": lambda path, _: _iterated(path),
    "polars": lambda path, _: _queried(path),
    "convert_log": lambda path, _: _rewritten(ks.convert_log, path, compression_type="none"),
    "restamp_log": lambda path, _: _rewritten(ks.restamp_log, path, offset_shift=1000),
    "scrub_log": lambda path, _: _rewritten(ks.scrub_log, path, keep=_all_of),
    "recover": lambda path, _: _recovered(path),
    "spark records": lambda path, _: _of_spark("records", path),
    "spark batches": lambda path, _: _of_spark("batches", path),
    "spark segments": lambda path, _: _of_spark("segments", path),
    "salvage to a copy": lambda path, _: _salvaged(path),
}  # fmt: skip
ONE_LOG = {
    "read_records", "read_records on", "read_committed", "iter_records", "convert_log",
    "restamp_log", "scrub_log", "salvage to a copy",
}  # fmt: skip
"""Functions that read the one log; the others also its data directory."""
VERIFYING = {
    "read_records", "read_records on", "read_committed", "iter_records", "polars", "verify",
    "audit", "convert_log", "restamp_log", "scrub_log", "recover", "salvage",
    "salvage to a copy", "spark records",
}  # fmt: skip
"""Functions and commands that verify checksums; the others read headers."""
READING_MARKERS = {
    "count_records", "count_records deep", "read_transactions", "read_producers",
    "count", "count --deep", "txns", "producers",
}  # fmt: skip
"""Those that read the records of markers besides the headers."""
SHOWING_EPOCHS = {
    "scan_log_dir", "read_fingerprints", "batches", "audit", "spark batches", "spark segments",
}  # fmt: skip
"""Those whose answers contain leader epochs, or notes about them, which change no exit code."""
NOTING_ZEROS = {
    "advise", "count", "count --deep", "txns", "producers", "polars", "audit", "salvage",
    "salvage to a copy", "records", "batches", "info", "verify", "spark records",
    "spark batches", "spark segments",
}  # fmt: skip
"""Those for which zeros after the last batch are nothing, or a note that changes no exit code."""
ROWS_OF_SPARK = {"spark records", "spark batches"}
"""Those that leave out the torn tail of a log: the view ``segments`` and ``verify`` show it."""
COPYING_BATCHES = {"salvage", "salvage to a copy"}
"""Those for which a file of zeros is one that a broker has just created."""

COMMANDS: dict[str, list[str]] = {
    "count": ["count"],
    "count --deep": ["count", "--deep"],
    "txns": ["txns", "--state", "all"],
    "producers": ["producers"],
    "advise": ["advise", "--codec", "none", "--sample", "1000"],
    "records": ["records"],
    "batches": ["batches"],
    "info": ["info"],
    "verify": ["verify"],
    "audit": ["audit"],
    "salvage": ["salvage"],
}


@dataclass(frozen=True)
class Answer:
    """What a function or command said."""

    rows: object
    is_warned: bool


def _asked(name: str, path: Path, intact: Path) -> Answer:
    """Return the answer of a function or a command; an error is a warning."""
    if name in COMMANDS:
        done = run(*COMMANDS[name], path, "--format", "json")
        text = done.stdout.replace(str(path), "PATH")
        rows = json.loads(text) if text.strip() else None
        if name == "salvage" and rows:  # a repair that is certain gives the intact log
            rows = [row for row in rows if row["outcome"] != "repaired"]
        if name == "advise" and rows:
            for row in rows:
                row.pop("compress_mb_per_s", None), row.pop("decompress_mb_per_s", None)
        return Answer(rows, done.returncode != 0)
    try:
        return Answer(*FUNCTIONS[name](path, intact))
    except (ks.KafkaScanError, OSError, _compute_error()) as error:
        return Answer(str(error), True)


def _compute_error() -> type[Exception]:
    from polars.exceptions import ComputeError

    return ComputeError


@functools.cache
def _intact_answers(log: str, folder: Path) -> dict[str, Answer]:
    path = _write(LOGS[log], folder / log)
    return {name: _asked(name, path, path) for name in (*FUNCTIONS, *COMMANDS)}


def _write(segments: Segments, folder: Path) -> Path:
    partition = folder / "orders-0"
    partition.mkdir(parents=True)
    for base_offset, data in segments.items():
        (partition / f"{base_offset:020}.log").write_bytes(data)
    return folder


# ---- damage ----------------------------------------------------------------------------------


@dataclass
class Damage:
    """A log that was damaged: the bytes of its segments, None for one that cannot be read."""

    name: str
    segments: dict[int, bytes | None]


def _flip(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    data = bytearray(segments[base])
    starts = _starts(segments[base])
    # Most flips are in a header: in records, only a checksum shows them.
    position = dice.choice(starts) + dice.randrange(61) if dice.random() < 0.7 else None
    position = dice.randrange(len(data)) if position is None else min(position, len(data) - 1)
    data[position] ^= 1 << dice.randrange(8)
    return Damage(f"bit at {position} of {base}", {**segments, base: bytes(data)})


def _starts(data: bytes) -> list[int]:
    found: list[int] = ks.scan_batches(data).batches["position"].tolist()
    return found


def _cut(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    data = segments[base]
    at = dice.choice([dice.randrange(len(data)), dice.choice(_starts(data))])
    return Damage(f"cut {base} at {at}", {**segments, base: data[:at]})


def _zero(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    data = segments[base]
    start = dice.choice([dice.randrange(len(data)), dice.choice(_starts(data))])
    stop = dice.choice([len(data), dice.randrange(start, len(data)) + 1])
    zeroed = data[:start] + bytes(stop - start) + data[stop:]
    return Damage(f"zeros {start} to {stop} of {base}", {**segments, base: zeroed})


def _delete(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    return Damage(f"deleted {base}", {at: data for at, data in segments.items() if at != base})


def _unreadable(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    return Damage(f"unreadable {base}", {**segments, base: None})


def _swap(dice: random.Random, segments: Segments) -> Damage:
    one, other = dice.sample([*segments], 2)
    swapped = {one: segments[other], other: segments[one]}
    return Damage(f"swapped {one} and {other}", {**segments, **swapped})


def _append(dice: random.Random, segments: Segments) -> Damage:
    base = dice.choice([*segments])
    junk = dice.randbytes(dice.choice([1, 12, 100]))
    return Damage(f"junk after {base}", {**segments, base: segments[base] + junk})


def _foreign(dice: random.Random, segments: Segments) -> Damage:
    earlier, base = sorted(dice.sample([*segments], 2))
    return _with_copy(segments, earlier, base, own=dice.choice([b"", segments[base]]))


def _with_copy(segments: Segments, earlier: int, base: int, own: bytes) -> Damage:
    copied = segments[earlier] + own
    name = f"a copy of {earlier} and {len(own)} bytes of {base} in {base}"
    return Damage(name, {**segments, base: copied})


DAMAGES = (_flip, _flip, _cut, _zero, _delete, _unreadable, _swap, _append, _foreign)


def _apply(damage: Damage, folder: Path) -> Path:
    path = _write({base: data for base, data in damage.segments.items() if data}, folder)
    for base, data in damage.segments.items():
        name = path / "orders-0" / f"{base:020}.log"
        if data is None:
            name.symlink_to("nowhere")
        elif not data:
            name.touch()
    return path


# ---- what nobody can see ---------------------------------------------------------------------


def _unseen(intact: Segments, damage: Damage) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """Yield what cannot be seen of damage, and by which functions and commands."""
    first, last = min(intact), max(intact)
    now = damage.segments
    if first not in now:
        yield "a log may begin anywhere: retention deletes segments from its start", _all
    end = now.get(last, b"")
    is_shorter = end not in (None, intact[last])
    if end is not None and is_shorter and intact[last].startswith(end.rstrip(b"\0")):
        kept = [at for at in (*_starts(intact[last]), len(intact[last])) if at <= len(end)]
        whole = max((at for at in kept if end[:at] == intact[last][:at]), default=0)
        if not end[whole:]:
            yield "nothing says where the log of a partition ended", _all
        elif not end[whole:].strip(b"\0"):
            noting = NOTING_ZEROS if whole else COPYING_BATCHES
            yield "a broker preallocates files: zeros follow the last batch", noting.__contains__
        elif end[whole:]:
            yield "a broker may be writing a torn tail", ROWS_OF_SPARK.__contains__
    differing = [
        (base, at)
        for base, data in now.items()
        if data is not None
        for at in range(min(len(data), len(intact[base])))
        if data[at] != intact[base][at]
    ]
    if all(_is_leader_epoch(intact[base], at) for base, at in differing) and differing:
        yield "no checksum covers partition_leader_epoch", SHOWING_EPOCHS.__contains__
    read = [data for data in now.values() if data]
    if any(map(_has_wrong_checksum, read)):
        seeing = VERIFYING | (READING_MARKERS if any(map(_has_unread_marker, read)) else set())
        reason = "only a checksum shows it, and headers and markers are read without"
        yield reason, lambda name: name not in seeing


def _all(name: str) -> bool:
    return True


def _is_leader_epoch(data: bytes, at: int) -> bool:
    start = max(start for start in _starts(data) if start <= at)
    return data[start + 16] == 2 and 12 <= at - start < 16


def _has_wrong_checksum(data: bytes) -> bool:
    scan = ks.scan_batches(data, on_corrupt="stop")
    return not ks.verify_crcs(data, scan.batches).all()


def _has_unread_marker(data: bytes) -> bool:
    batches = ks.scan_batches(data, on_corrupt="stop").batches
    return len(read_control_rows(ks.Source(data), batches).unread) > 0


# ---- the test --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def intact_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("intact")


@pytest.mark.parametrize("seed", seeds(240))
def test_damage_is_never_silent(seed: int, intact_folder: Path, tmp_path: Path) -> None:
    dice = random.Random(seed)
    for number in range(2):
        log = dice.choice([*LOGS])
        known = _intact_answers(log, intact_folder)
        damage = dice.choice(DAMAGES)(dice, LOGS[log])
        folder = tmp_path / str(number)
        path = _apply(damage, folder)
        unseen = [*_unseen(LOGS[log], damage)]
        for name, intact in known.items():
            answer = _asked(name, path, intact_folder / log)
            is_known = answer.rows == intact.rows or answer.is_warned
            if not is_known and not any(of(name) for _, of in unseen):
                pytest.fail(f"{name} says nothing about {log}, {damage.name}: {answer.rows}")
        shutil.rmtree(folder)


@pytest.mark.parametrize("position", [61, 69], ids=["length", "type"])
def test_a_marker_that_cannot_be_read_is_never_silent(position: int, tmp_path: Path) -> None:
    segments = LOGS["transactions"]
    batches, data = ks.scan_batches(segments[0]).batches, bytearray(segments[0])
    (start, *_) = batches["position"][ks.batches.is_control(batches)]
    data[start + position] ^= 0x81
    assert _has_unread_marker(bytes(data))
    path = _apply(Damage("", {**segments, 0: bytes(data)}), tmp_path)
    for name in READING_MARKERS:
        assert _asked(name, path, path).is_warned, name


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_foreign_segment_is_never_silent(
    log: str, is_mixed: bool, intact_folder: Path, tmp_path: Path
) -> None:
    """Offsets below the name of the last segment, with its own ones after them, or alone."""
    segments = LOGS[log]
    *_, earlier, last = segments
    damage = _with_copy(segments, earlier, last, own=segments[last] if is_mixed else b"")
    path = _apply(damage, tmp_path)
    for name in (*FUNCTIONS, *COMMANDS):
        answer = _asked(name, path, intact_folder / log)
        assert answer.is_warned, name


@pytest.mark.parametrize("name", ["a link", "a folder"])
def test_a_folder_that_cannot_be_read_is_never_silent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(LOGS["records"], tmp_path / "data")
    (path / "orders-1").symlink_to(path / "nowhere" if name == "a link" else "orders-0")
    if name == "a folder":
        scandir = os.scandir

        def refused(folder: Any = ".") -> Any:
            if os.fspath(folder).rstrip("/").endswith("orders-1"):
                raise PermissionError(13, "Permission denied", os.fspath(folder))
            return scandir(folder)

        monkeypatch.setattr(os, "scandir", refused)
    for known in (*FUNCTIONS, *COMMANDS):
        if known not in ONE_LOG:
            assert _asked(known, path, path).is_warned, known


def test_a_rewrite_that_did_not_end_is_never_silent(tmp_path: Path) -> None:
    """Records that were to be erased may still be there."""
    intact, path = (_write(LOGS["records"], tmp_path / name) for name in ("intact", "marked"))
    (path / "orders-0" / ".partition.rewriting").touch()
    for known in (*FUNCTIONS, *COMMANDS):
        assert not _asked(known, intact, intact).is_warned, known
        assert _asked(known, path, intact).is_warned, known
    for command in (["index", "check"], ["index", "build"], ["info", "--all"]):
        done = run(*command, path)
        assert done.returncode == 1, command
        assert done.stderr.count("[INTERRUPTED_REWRITE]") == 1, done.stderr
