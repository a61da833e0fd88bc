"""Commands about the side files of a log: indexes, snapshots, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kafkascan as ks
from kafkascan.broker_state.index_schemas import INDEX_BUILD_SCHEMA, INDEX_CHECK_SCHEMA
from kafkascan.cli.shared_options import (
    ALL_OFFSETS,
    PATH,
    Integer,
    Time,
    interval_bytes,
    option,
    with_dry_run,
    with_run,
    with_segments,
)
from kafkascan.format.file_names import leading_offset, sibling_name
from kafkascan.logs.log_schemas import BATCH_LOCATION_SCHEMA, RECORD_LOCATION_SCHEMA
from kafkascan.tables.schema import Field, Schema, Shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkascan.cli.run import FindingReport, ReadingReport, Run
    from kafkascan.io.file_identity import FileIdentity
    from kafkascan.logs.queries.segment_inputs import SegmentInput, SegmentPaths
    from kafkascan.tables.table import Table

_CHECKED = ("index", "timeindex", "txnindex")


@click.group()
def index() -> None:
    """Show, check, build and search index files and checkpoints."""


# ---- show ------------------------------------------------------------------------------------


_LEADER_EPOCHS = "leader-epoch-checkpoint"
# Files of properties, which are one row.
_PROPERTIES: dict[str, Callable[[Path], Any]] = {
    "partition.metadata": lambda path: vars(ks.broker_state.read_partition_metadata(path)),
    "meta.properties": lambda path: ks.broker_state.read_meta_properties(path),
    ".kafka_cleanshutdown": lambda path: vars(ks.broker_state.read_clean_shutdown(path)),
}


def _read_entries(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a side file; its name says what it is."""
    if path.name in _PROPERTIES:
        return {name: [value] for name, value in _PROPERTIES[path.name](path).items()}
    if path.name == _LEADER_EPOCHS:
        epochs = ks.broker_state.read_leader_epochs(path)
        return _as_columns(ks.broker_state.LeaderEpoch._fields, epochs)
    if path.name.endswith("-offset-checkpoint"):
        offsets = ks.broker_state.read_offset_checkpoint(path)
        rows = [(*log, offset) for log, offset in offsets.items()]
        return _as_columns(("topic", "partition", "offset"), rows)
    is_snapshot = ".snapshot" in path.suffixes
    entries = ks.broker_state.read_producer_snapshot(path) if is_snapshot else ks.read_index(path)
    columns = {name: entries[name].tolist() for name in entries.dtype.names or ()}
    base = leading_offset(path.name)
    if "relative_offset" in columns and base is not None:
        # In Java's arithmetic: it wraps around.
        return {"offset": (entries["relative_offset"].astype("int64") + base).tolist()} | columns
    return columns


def _as_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}


@index.command()
@PATH
@with_run(rows="entries", to_file=True)
def show(run: Run, path: Path) -> None:
    """Print the entries of an index, snapshot or checkpoint file.

    PATH is an .index, .timeindex, .txnindex or .snapshot file, a leader-epoch-checkpoint, an
    offset checkpoint, partition.metadata, meta.properties or .kafka_cleanshutdown.
    """

    def read(path: Path, report: FindingReport) -> dict[str, list[Any]] | None:
        try:
            columns = _read_entries(path)
        except ValueError as error:
            report.add_unreadable(str(path), error)
            return None
        if not columns:  # an ordinary sight after a power loss
            report.add(f"{path}: the file has no properties")
        return columns or None

    for columns in run.each([path], read):
        if columns is not None:
            table = _table_of(columns)
            run.output.write_tables(table.schema, [table])


def _table_of(columns: dict[str, list[Any]]) -> Table:
    """Return columns as a table: the fields of a file of properties have any name."""
    from kafkascan.tables.table import Table

    fields = []
    for name, values in columns.items():
        known = next((one for one in values if one is not None), 0)
        kind = {str: "string", bool: "bool"}.get(type(known), "int64")
        kind = "time" if name.endswith("timestamp") else kind
        fields.append(Field(name, kind, shown=Shown.ALWAYS))
    return Table(Schema("entries", tuple(fields)), columns)


# ---- check -----------------------------------------------------------------------------------


@index.command()
@with_segments
@with_run(INDEX_CHECK_SCHEMA, to_file=True)
def check(run: Run, segments: SegmentPaths) -> None:
    """Check index files against the batches of their segments.

    Prints a row per index file. Errors make readers miss records; notes are expected, such as
    the zeros after the entries of an active segment, and do not count for the exit code. A
    segment without index files has no rows.
    """

    def check_all(one: SegmentInput, report: ReadingReport) -> list[dict[str, Any]]:
        # A broker appends to the log first: the log must be opened after its indexes were read.
        from kafkascan.batches.columns import join_tables
        from kafkascan.cli.run import scan

        found = (one.segment.read_sibling(kind) for kind in _CHECKED)
        indexes = [index for index in found if index is not None]
        with one.open() as log:
            table = join_tables(list(report.tables(log, scan(log))))
        return [one.labels | _checked(path, data, table, report) for path, data in indexes]

    found = run.map(
        run.find_segments(segments.from_first_offset()), check_all, checks_offsets=False
    )
    run.output.write_rows(INDEX_CHECK_SCHEMA, [row for rows in found for row in rows])


def _checked(
    path: Path, data: bytes, batches: NDArray[np.void], report: FindingReport
) -> dict[str, Any]:
    from kafkascan.broker_state.index_checks import check_parsed_index, parse_index_file
    from kafkascan.cli.run import READ_ERRORS

    counts = dict.fromkeys(ks.Severity, 0)
    entries = None
    try:
        parsed = parse_index_file(data, path)
        findings = check_parsed_index(parsed, path, batches)
        entries = len(parsed[0])
    except READ_ERRORS as error:
        report.add_unreadable(str(path), error)
        findings = []
    for finding in findings:
        counts[finding.severity] += finding.count
        if finding.severity is not ks.Severity.NOTE:
            report.add(f"{path}: {finding}")
    return {
        "file": path.name,
        "entries": entries,
        "size": len(data),
        **{f"{severity}s": count for severity, count in counts.items()},
    }


# ---- build -----------------------------------------------------------------------------------


@index.command()
@with_segments
@with_run(INDEX_BUILD_SCHEMA)
@with_dry_run("write", "output")
@option("--write", help="Write the index files next to their segments.")
@option("--output DIR", type=click.Path(file_okay=False, path_type=Path),
        help="Write the index files to DIR, into a subdirectory for each partition.")  # fmt: skip
@interval_bytes()
def build(
    run: Run, segments: SegmentPaths, write: bool, output: Path | None, interval_bytes: int
) -> None:
    """Build .index and .timeindex files from batch headers.

    Without --write and --output nothing is written; the rows show whether the existing files
    are the same, differ or are missing. `kafkascan recover` does more: it also verifies
    checksums, and builds .txnindex and .snapshot files. Only live .log files that end with a
    complete batch get indexes: a broker recovers a segment without indexes, and believes those
    that exist. A log that changed since it was read gets none with --write (exit code 3).
    """
    if write and output is not None:
        raise click.UsageError("--write and --output cannot be combined")

    def build_both(one: SegmentInput, report: ReadingReport) -> list[dict[str, Any]]:
        from kafkascan.batches.columns import join_tables
        from kafkascan.cli.run import scan
        from kafkascan.format.errors import FileChangedError

        name = ks.format.parse_segment_name(one.path.name)
        if name is None or name.kind != "log" or name.base_offset is None:
            return []
        try:
            as_read = _as_read(one) if write else None
        except FileChangedError as error:
            report.add_unreadable(str(one.path), error)
            return []
        with one.open() as source:
            batches = scan(source)
            table = join_tables(list(report.tables(source, batches)))
        options = {"base_offset": name.base_offset, "interval_bytes": interval_bytes}
        # In this order: a broker takes the index as the sign that both are complete.
        files = {
            "timeindex": ks.build_time_index(table, **options),
            "index": ks.build_offset_index(table, **options),
        }
        target = _target(one, write, output) if batches.end is ks.ScanEnd.CLEAN else None
        if (write or output is not None) and target is None:
            reason = "the segment does not end with a complete batch: recover the log"
            report.add(f"{one.path}: no index is written, as {reason}")
        built = []
        try:
            for kind, entries in files.items():
                built.append(one.labels | _built(one, kind, entries, target, as_read, report))
        except OSError as error:  # of an index file
            report.add_unreadable(str(one.path), error)
        return built[::-1]

    inputs = run.find_segments(segments.from_first_offset())
    if write and (elsewhere := [one for one in inputs if not one.is_on_disk]):
        raise click.UsageError(f"--write: {elsewhere[0].path} is not on a disk; use --output")
    found = run.map(inputs, build_both, checks_offsets=False)
    run.output.write_rows(INDEX_BUILD_SCHEMA, [row for rows in found for row in rows])


def _target(one: SegmentInput, write: bool, output: Path | None) -> Path | None:
    """Return the directory to write index files to; None writes none."""
    from kafkascan.io.atomic_files import sync_folder

    if output is None:
        return one.path.parent if write else None
    folder = output / one.path.resolve().parent.name
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    return folder


def _as_read(one: SegmentInput) -> FileIdentity:
    """
    Return the identity of a log on disk: a broker believes an index that does not match it.

    Raises
    ------
    FileChangedError
        If another file has the name of the log that was listed.
    """
    from kafkascan.format.errors import FileChangedError
    from kafkascan.io.file_identity import FileIdentity
    from kafkascan.io.folders import DiskFolder

    folder = one.segment.folder
    assert isinstance(folder, DiskFolder)
    folder.status(one.segment.file_name)  # the log that is read, which may be renamed by now
    found = FileIdentity.of(one.path)
    if not one.segment.is_in_place():
        raise FileChangedError(found.path, "another file replaced it")
    return found


def _built(
    one: SegmentInput,
    kind: str,
    entries: NDArray[np.void],
    folder: Path | None,
    as_read: FileIdentity | None,
    report: FindingReport,
) -> dict[str, Any]:
    from kafkascan.io.atomic_files import AtomicFile

    name = sibling_name(one.path.name, kind)
    assert name is not None
    existing, data = one.segment.read_sibling(kind), entries.tobytes()
    verdict = "missing"
    if existing is not None:
        verdict = "same" if existing[1] == data else "differs"
    if folder is not None and (folder != one.path.parent or verdict != "same"):
        original = one.path if existing is None else existing[0]
        like = original if one.is_on_disk else None
        with AtomicFile(folder / name, like=like, made_from=as_read) as file:
            file.stream.write(data)
        verdict = "written"
    elif verdict != "same":
        report.add(f"{one.path.with_name(name)}: {verdict}")
    return {"file": name, "entries": len(entries), "size": len(data), "verdict": verdict}


# ---- lookup ----------------------------------------------------------------------------------


@index.command()
@PATH
@option("--offset", type=Integer(), help="Find the batch that contains OFFSET, or the next one.")
@option("--timestamp TIME", type=Time(), help="Find the first record at TIME or later.")
@option("--trust-index",
        help="Start at the position that the index files give, as brokers do, instead of reading"
        " all batch headers.")  # fmt: skip
@ALL_OFFSETS
@with_run(to_file=True)
def lookup(
    run: Run,
    path: Path,
    offset: int | None,
    timestamp: int | None,
    trust_index: bool,
    log_start_offset: int | None,
) -> None:
    """Find an offset or a timestamp in a log, as a broker would.

    Prints the position of the batch or record. Exit code 1: there is none.

    PATH is a segment file or a partition directory. In a directory, the live segments are
    searched.
    """
    if (offset is None) == (timestamp is None):
        raise click.UsageError("give either --offset or --timestamp")

    options: dict[str, Any] = {"trust_index": trust_index, "log_start_offset": log_start_offset}

    def find(path: Path, report: FindingReport) -> list[dict[str, Any]]:
        found: ks.logs.BatchLocation | ks.logs.RecordLocation | None
        if offset is not None:
            found = ks.lookup_offset(path, offset, **options)
        else:
            import numpy as np

            assert timestamp is not None
            found = ks.lookup_timestamp(path, np.datetime64(timestamp, "ms"), **options)
        if found is None:
            wanted = f"offset {offset}" if offset is not None else f"timestamp {timestamp}"
            report.add(f"{path}: the log has no record at {wanted} or later")
            return []
        return [vars(found)]

    schema = BATCH_LOCATION_SCHEMA if offset is not None else RECORD_LOCATION_SCHEMA
    for rows in run.each([path], find):
        run.output.write_rows(schema, rows)
