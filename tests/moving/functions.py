"""Public functions that read logs, each with what of its answer has to be true of one moment."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkascan as ks
from tests.moving.answers import CHANGED, Answer, Reader, empty_log, rows, symbols, without_place
from tests.moving.histories import EPOCH_CHECKPOINT, START_CHECKPOINT
from tests.spark.logs import rows as rows_of_spark
from tests.support.segments import T0


def _records(table: ks.RecordTable) -> Answer:
    offsets, keys = table["offset"].tolist(), table.items("key")
    times = table["timestamp"].tolist()
    return tuple(zip(offsets, keys, times, strict=True)), symbols(table.problems)


def _iterated(path: Path, **options: Any) -> Answer:
    found: list[Any] = []
    problems: list[Any] = []
    for table in ks.iter_records(path, batch_size=1, on_corrupt="stop", **options):
        found += _records(table)[0]
        problems += table.problems
    return tuple(found), symbols(problems)


def _scanned(path: Path) -> Answer:
    table = ks.scan_log_dir(path)
    found = [(int(row["base_offset"]), int(row["crc"])) for chunk in table for row in chunk.batches]
    return tuple(found), symbols(table.problems)


def _of_file(kind: str, read: Callable[[Path], Any]) -> Reader:
    """Return a reader of the first file of a kind; a file that is gone by then is no error."""

    def answer(path: Path) -> Answer:
        file = min(path.glob(f"*{kind}"), default=None)
        if file is None:
            return ()
        try:
            return (repr(read(file)),)
        except FileNotFoundError:
            return ("FILE_GONE",)

    return answer


def _headers(batches: Any) -> Answer:
    return batches["base_offset"].tolist(), batches["crc"].tolist()


def _scanned_file(path: Path) -> Answer:
    return _headers(ks.scan_batches(path, on_corrupt="stop").batches)


def _iterated_batches(path: Path) -> Answer:
    return tuple(_headers(batches) for batches in ks.iter_batches(path, rows=4, on_corrupt="stop"))


def _verified(path: Path) -> Answer:
    with ks.Source(path) as source:
        batches = ks.scan_batches(source, on_corrupt="stop").batches
        return *_headers(batches), ks.verify_crcs(source, batches).tolist()


def _opened(path: Path) -> Answer:
    with ks.open_segment(path).open() as source:
        return _headers(ks.scan_batches(source, on_corrupt="stop").batches)


def _segments(partition: ks.logs.PartitionDir) -> Answer:
    return tuple(segment.path.name for segment in ks.logs.select_segments(partition))


def _looked_up(path: Path, **options: Any) -> Answer:
    location = ks.lookup_offset(path, 9, **options)
    return () if location is None else (Path(location.path).name, location.position)


def _time_looked_up(path: Path, **options: Any) -> Answer:
    location = ks.lookup_timestamp(path, T0 + 9, **options)
    return () if location is None else (Path(location.path).name, location.offset)


def _committed_view(path: Path) -> Answer:
    view = ks.logs.read_committed_view(path, on_corrupt="stop")
    return view.last_stable_offset, repr(view)


def _frame(path: Path, **options: Any) -> Answer:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ks.tables.IncompleteTableWarning)
        frame = ks.polars.scan_records(path, on_corrupt="stop", **options).collect()
    found = {str(one.message).rpartition("[")[2].rstrip("]") for one in caught}
    return tuple(frame.select("offset", "key").rows()), sorted(found - {"TORN_TAIL", "ZERO_TAIL"})


def _spark(view: str, error: str, *names: str) -> Reader:
    def answer(path: Path) -> Answer:
        found = rows_of_spark(path=str(path), view=view, mode="PERMISSIVE")
        errors = {str(row[error]) for row in found}
        changes = {symbol for symbol in CHANGED if any(symbol in error for error in errors)}
        cells = (tuple(without_place(row[name], path) for name in names) for row in found)
        return tuple(cells), tuple(changes)

    return answer


def _compared(path: Path) -> Answer:
    """Compare a log with an empty one of the same name."""
    with empty_log(path.name) as still:
        diff = ks.diff_logs(path, still)
        return repr(list(diff.rows())), symbols([*diff.notes, *diff.problems])


def _tables(tables: ks.tables.TableSet, path: Path) -> Answer:
    found = {name: list(table.rows()) for name, table in tables.tables.items()}
    return without_place(found, path), symbols(tables.problems)


def _alarms(audit: ks.auditing.Audit) -> Answer:
    alarms = [(one.symbol, one.position) for one in audit.alarms]
    changed = sorted({one.symbol for one in audit.findings} & CHANGED)
    return alarms, changed


def _state(read: Callable[[Path], ks.tables.TableSet], folder: str) -> Reader:
    return lambda path: _tables(read(path.parent / folder), path)


_BATCHES = "takes batches of a source that is open"
_WRITES = "writes a log, and refuses one that a cleaner is changing"
_NO_HISTORY = "reads a topic that no history has"
_STILL = "reads a file that is written while the broker starts or stops"
_TIER = "reads remote storage, whose objects do not change"
OTHER_FUNCTIONS = {
    "build_producer_snapshot": _BATCHES,
    "build_report": "the command `report` is tried",
    "build_transaction_index": _BATCHES,
    "compare_remote_segments": _TIER,
    "convert_log": _WRITES,
    "convert_records": _BATCHES,
    "diff_metadata": "takes what `read_metadata` returned",
    "filter_records": _BATCHES,
    "find_duplicate_logs": "reads the names of folders only",
    "open_registry": _NO_HISTORY,
    "open_tiered": _TIER,
    "read_clean_shutdown": _STILL,
    "read_control_records": _BATCHES,
    "read_meta_properties": _STILL,
    "read_remote_segments": _NO_HISTORY,
    "read_schema_usage": _NO_HISTORY,
    "read_share_state": _NO_HISTORY,
    "recover": "fails if a broker uses the data dir",
    "restamp": _BATCHES,
    "restamp_log": _WRITES,
    "restore": _TIER,
    "scrub_log": _WRITES,
    "validate_batches": _BATCHES,
}
"""Functions that take a path or a source and have no reader, with reasons."""

FUNCTIONS: dict[str, Reader] = {
    "read_records": lambda path: _records(ks.read_records(path, on_corrupt="stop")),
    "read_records committed": lambda path: _records(
        ks.read_records(path, on_corrupt="stop", isolation="read_committed")
    ),
    "open_view": lambda path: _records(ks.read_records(ks.logs.open_view(path), on_corrupt="stop")),
    "iter_records": _iterated,
    "iter_records committed": lambda path: _iterated(path, isolation="read_committed"),
    "scan_log_dir": _scanned,
    "scan_log_dir of data dir": lambda path: _scanned(path.parent),
    "scan_batches": _of_file(".log", _scanned_file),
    "iter_batches": _of_file(".log", _iterated_batches),
    "open_segment": _of_file(".log", _opened),
    "verify_crcs": _of_file(".log", _verified),
    "open_log_dir": lambda path: tuple(map(_segments, ks.open_log_dir(path).partitions)),
    "select_segments": lambda path: _segments(ks.logs.partition_dir(path)),
    "partition_dir": lambda path: (ks.logs.partition_dir(path).find_end_offset(),),
    "partition_dir start": lambda path: (ks.logs.partition_dir(path).log_start_offset,),
    "end_offsets": lambda path: (ks.spark.end_offsets(str(path)),),
    "lookup_offset": _looked_up,
    "lookup_offset by index": lambda path: _looked_up(path, trust_index=True),
    "lookup_timestamp": _time_looked_up,
    "lookup_timestamp by index": lambda path: _time_looked_up(path, trust_index=True),
    "read_committed_view": _committed_view,
    "count_records": rows(ks.count_records),
    "count_records deep": rows(lambda path: ks.count_records(path, deep=True)),
    "read_transactions": rows(ks.read_transactions),
    "read_producers": rows(ks.read_producers),
    "read_producers sampled": rows(lambda path: ks.read_producers(path, sample=2)),
    "read_producer_state": lambda path: tuple(ks.analysis.read_producer_state(path).tolist()),
    "read_fingerprints": rows(ks.analysis.read_fingerprints),
    "advise": rows(
        lambda path: ks.advise(path, choices=["gzip:1"]), "compress_mb_per_s", "decompress_mb_per_s"
    ),
    "audit": lambda path: _alarms(ks.audit(path)),
    "diff_logs": _compared,
    "read_index": _of_file(".timeindex", lambda path: ks.read_index(path).tolist()),
    "read_producer_snapshot": _of_file(
        ".snapshot", lambda path: ks.broker_state.read_producer_snapshot(path).tolist()
    ),
    "read_leader_epochs": _of_file(EPOCH_CHECKPOINT, ks.broker_state.read_leader_epochs),
    "read_partition_metadata": _of_file(
        "partition.metadata", ks.broker_state.read_partition_metadata
    ),
    "read_offset_checkpoint": lambda path: _of_file(
        START_CHECKPOINT, ks.broker_state.read_offset_checkpoint
    )(path.parent),
    "salvage": rows(ks.salvage),
    "scan_records": _frame,
    "scan_records committed": lambda path: _frame(path, isolation="read_committed"),
    "Spark records": _spark("records", "_corrupt_record", "offset", "key"),
    "Spark batches": _spark("batches", "error", "base_offset", "max_timestamp"),
    "Spark segments": _spark("segments", "error", "path"),
}
FUNCTIONS_OF_STATE: dict[str, Reader] = {
    "read_groups": _state(ks.read_groups, "__consumer_offsets-0"),
    "read_transaction_state": _state(ks.read_transaction_state, "__transaction_state-0"),
    "read_metadata": _state(ks.read_metadata, "__cluster_metadata-0"),
}
"""Those that read Kafka's own topics, which only recorded histories have."""
