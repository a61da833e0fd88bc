"""Readers of logs, and what of their answers has to be true of one moment."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import kafkascan as ks
from kafkascan.format.findings import Severity
from kafkascan.tables.table import Problem
from tests.spark.logs import rows as rows_of_spark
from tests.support.command_line import run

Answer = tuple[Any, ...]
"""What an answer consists of."""
CHANGED = frozenset({"CHANGED_WHILE_READ", "FILE_CHANGED", "FILE_GONE"})
"""Symbols of what says that a log changed while it was read."""


def symbols(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return what is wrong, without the ends of appends in progress."""
    return tuple(
        sorted({
            # The error of a file that was truncated while it was read says so.
            "FILE_CHANGED" if "the file was truncated" in problem.message else problem.symbol
            for problem in problems
            if (problem.severity is not Severity.NOTE or problem.symbol in CHANGED)
            and not (problem.symbol in ("TORN_TAIL", "ZERO_TAIL") and not problem.rows_missing)
        })
    )  # fmt: skip


def _records(table: ks.RecordTable) -> Answer:
    offsets, keys = table["offset"].tolist(), table.items("key")
    times = table["timestamp"].tolist()
    return tuple(zip(offsets, keys, times, strict=True)), symbols(table.problems)


def _iterated(path: Path, **options: Any) -> Answer:
    rows: list[Any] = []
    problems: list[Problem] = []
    for table in ks.iter_records(path, batch_size=1, on_corrupt="stop", **options):
        rows += _records(table)[0]
        problems += table.problems
    return tuple(rows), symbols(problems)


def _scanned(path: Path) -> Answer:
    table = ks.scan_log_dir(path)
    rows = [(int(row["base_offset"]), int(row["crc"])) for chunk in table for row in chunk.batches]
    return tuple(rows), symbols(table.problems)


def _rows(read: Callable[[Path], Any], *left_out: str) -> Callable[[Path], Answer]:
    def answer(path: Path) -> Answer:
        table = read(path)
        rows = [
            tuple(value for name, value in row.items() if name not in left_out)
            for row in table.rows()
        ]
        return repr(rows).replace(str(path.parent), "DATA"), symbols(table.problems)

    return answer


def _followed(path: Path) -> Answer:
    polled = ks.logs.LogFollower(path).poll()
    found = [ks.read_records(one.source, one.batches) for one in polled]
    return tuple(row for table in found for row in _records(table)[0]), ()


def _frame(path: Path, **options: Any) -> Answer:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ks.tables.IncompleteTableWarning)
        frame = ks.polars.scan_records(path, on_corrupt="stop", **options).collect()
    found = {str(one.message).rpartition("[")[2].rstrip("]") for one in caught}
    return tuple(frame.select("offset", "key").rows()), sorted(found - {"TORN_TAIL", "ZERO_TAIL"})


def _spark(view: str, error: str, *names: str) -> Callable[[Path], Answer]:
    def answer(path: Path) -> Answer:
        found = rows_of_spark(path=str(path), view=view, mode="PERMISSIVE")
        errors = {str(row[error]) for row in found}
        changes = {symbol for symbol in CHANGED if any(symbol in error for error in errors)}
        return tuple(tuple(row[name] for name in names) for row in found), tuple(changes)

    return answer


def _printed(*arguments: object) -> Callable[[Path], Answer]:
    def answer(path: Path) -> Answer:
        done = run(*(path if one == "LOG" else one for one in arguments), "--format", "jsonl")
        printed = [json.loads(line).values() for line in done.stdout.splitlines()]
        data_dir = str(path.parent)
        rows = tuple(tuple(repr(one).replace(data_dir, "DATA") for one in row) for row in printed)
        if arguments[0] == "records":  # which has the offset first
            rows = tuple((int(offset), *rest) for offset, *rest in rows)
        lines = done.stderr.replace(data_dir, "DATA").splitlines()
        found = [line for line in lines if line.endswith("]") and not line.endswith("_TAIL]")]
        # An append in progress is a note, if the log goes on to grow.
        code = 0 if len(found) < len(lines) and done.returncode == 1 else done.returncode
        return rows, sorted(found), code

    return answer


def _alarms(audit: Callable[[Path], Answer]) -> Callable[[Path], Answer]:
    def answer(path: Path) -> Answer:
        findings, *rest = audit(path)
        alarms = (one for one in findings if one[0] != "'note'" or one[1].strip("'") in CHANGED)
        return tuple(alarms), *rest

    return answer


READERS: dict[str, Callable[[Path], Answer]] = {
    "read_records": lambda path: _records(ks.read_records(path, on_corrupt="stop")),
    "read_records committed": lambda path: _records(
        ks.read_records(path, on_corrupt="stop", isolation="read_committed")
    ),
    "iter_records": _iterated,
    "iter_records committed": lambda path: _iterated(path, isolation="read_committed"),
    "scan_log_dir": _scanned,
    "count_records": _rows(ks.count_records),
    "count_records deep": _rows(lambda path: ks.count_records(path, deep=True)),
    "read_transactions": _rows(ks.read_transactions),
    "read_producers": _rows(ks.read_producers),
    "scan_records": _frame,
    "scan_records committed": lambda path: _frame(path, isolation="read_committed"),
    "LogFollower": _followed,
    "Spark records": _spark("records", "_corrupt_record", "offset", "key"),
    "Spark batches": _spark("batches", "error", "base_offset", "max_timestamp"),
    "records": _printed("records", "LOG", "--columns", "offset,key"),
    "records --tail": _printed("records", "LOG", "--columns", "offset,key", "--tail", "3"),
    "records committed": _printed(
        "records", "LOG", "--columns", "offset,key", "--isolation", "read_committed"
    ),
    "batches": _printed("batches", "LOG", "--verify"),
    "verify": _printed("verify", "LOG"),
    "info": _printed("info", "LOG"),
    "txns": _printed("txns", "LOG", "--state", "all"),
    "sql records": _printed("sql", 'SELECT "offset", "key" FROM records', "LOG"),
    "audit": _alarms(_printed("audit", "LOG", "--deep")),
    "audit with notes": _printed("audit", "LOG", "--deep"),
}
