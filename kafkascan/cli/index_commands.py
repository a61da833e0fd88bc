"""Verbs about the files beside a log: indexes, snapshots, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.batch_columns import join_tables
from kafkascan.cli.inputs import PLACE_COLUMNS, Input
from kafkascan.cli.options import InputPath, Time, with_inputs
from kafkascan.cli.output import FORMATS, open_writer, write_rows
from kafkascan.cli.session import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_UNREADABLE,
    READ_ERRORS,
    Report,
    Session,
    tell_on_stderr,
)
from kafkascan.files import AtomicFile
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES
from kafkascan.names import sibling_name

BUILD_COLUMNS = (*PLACE_COLUMNS, "file", "entries", "size", "verdict")
CHECK_COLUMNS = (*PLACE_COLUMNS, "file", "entries", "size", "errors", "warnings", "notes")
OFFSET_COLUMNS = ("path", "position", "size_in_bytes", "base_offset", "last_offset")
TIME_COLUMNS = ("path", "position", "offset", "timestamp", "leader_epoch")
_CHECKED = ("index", "timeindex", "txnindex")

_output_format = click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="table",
    show_default=True, help="Of the rows.",
)  # fmt: skip


@click.group()
def index() -> None:
    """Indexes, snapshots of producers and checkpoints: show, check, build, look up."""


# ---- show ------------------------------------------------------------------------------------


def _show_index(path: Path) -> dict[str, list[Any]]:
    entries = ks.read_index(path)
    shown = {name: entries[name].tolist() for name in entries.dtype.names or ()}
    digits = path.name.partition(".")[0]
    if "relative_offset" in shown and digits.isdigit():
        shown = {
            "offset": [int(digits) + relative for relative in shown["relative_offset"]]
        } | shown
    return shown


def _show_snapshot(path: Path) -> dict[str, list[Any]]:
    entries = ks.read_producer_snapshot(path)
    return {name: entries[name].tolist() for name in entries.dtype.names or ()}


def _show_epochs(path: Path) -> dict[str, list[Any]]:
    epochs = ks.read_leader_epochs(path)
    return {name: [getattr(one, name) for one in epochs] for name in ks.LeaderEpoch._fields}


def _show_offsets(path: Path) -> dict[str, list[Any]]:
    offsets = ks.read_offset_checkpoint(path)
    return {
        "topic": [topic for topic, _ in offsets],
        "partition": [partition for _, partition in offsets],
        "offset": list(offsets.values()),
    }


def _show_metadata(path: Path) -> dict[str, list[Any]]:
    return {name: [value] for name, value in vars(ks.read_partition_metadata(path)).items()}


def _show_properties(path: Path) -> dict[str, list[Any]]:
    return {name: [value] for name, value in ks.read_meta_properties(path).items()}


def _show_shutdown(path: Path) -> dict[str, list[Any]]:
    return {name: [value] for name, value in vars(ks.read_clean_shutdown(path)).items()}


_Shown = Callable[[Path], dict[str, list[Any]]]

_BY_NAME: dict[str, _Shown] = {
    "leader-epoch-checkpoint": _show_epochs,
    "partition.metadata": _show_metadata,
    "meta.properties": _show_properties,
    ".kafka_cleanshutdown": _show_shutdown,
}


def _how_to_show(path: Path) -> _Shown:
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.name.endswith("-offset-checkpoint"):
        return _show_offsets
    return _show_snapshot if ".snapshot" in path.suffixes else _show_index


@index.command()
@click.argument("path", type=InputPath())
@_output_format
@click.pass_context
def show(context: click.Context, path: Path, output_format: str) -> None:
    """Print the entries of a file that stands beside a log.

    PATH is an .index, .timeindex, .txnindex or .snapshot file, a leader-epoch-checkpoint, a
    checkpoint of offsets, partition.metadata, meta.properties or .kafka_cleanshutdown.
    """
    try:
        columns = _how_to_show(path)(path)
    except (*READ_ERRORS, ValueError) as error:
        context.exit(_unreadable(path, error))
    writer = open_writer(output_format, list(columns))
    writer.write(columns)
    writer.close()


def _unreadable(path: Path, error: Exception) -> int:
    report = Report(lambda size: None)
    report.unreadable(str(path), error)
    tell_on_stderr(report)
    return EXIT_UNREADABLE


# ---- check -----------------------------------------------------------------------------------


@index.command()
@with_inputs
@click.pass_context
def check(
    context: click.Context,
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
) -> None:
    """Compare indexes with the batches of their logs.

    Errors lead readers astray; notes are as they may be, such as the zeros behind the entries
    of a segment that is written to, and do not count for the exit code.
    """

    def check_all(one: Input, source: ks.Source, report: Report) -> list[dict[str, Any]]:
        table = join_tables(list(report.tables(source)))
        return [one.place | _checked(path, table, report) for path in _siblings(one.path, _CHECKED)]

    session = Session(paths, memory_map=memory_map, drop_cache=drop_cache, shows_progress=True)
    found = [row for rows in session.map(check_all, None) for row in rows]
    write_rows(output_format, CHECK_COLUMNS, found)
    context.exit(session.exit_code)


def _siblings(log: Path, kinds: Sequence[str]) -> Iterator[Path]:
    for kind in kinds:
        name = sibling_name(log.name, kind)
        if name is not None and log.with_name(name).exists():
            yield log.with_name(name)


def _checked(path: Path, batches: NDArray[np.void], report: Report) -> dict[str, Any]:
    counts = dict.fromkeys(ks.Severity, 0)
    entries = None
    try:
        findings = ks.check_index(path, batches)
        entries = _count_entries(path)
    except READ_ERRORS as error:
        report.unreadable(str(path), error)
        findings = []
    for finding in findings:
        counts[finding.severity] += 1
        if finding.severity is not ks.Severity.NOTE:
            report.finding(f"{path}: {finding}")
    return {
        "file": path.name,
        "entries": entries,
        "size": path.stat().st_size,
        **{f"{severity}s": count for severity, count in counts.items()},
    }


def _count_entries(path: Path) -> int | None:
    try:
        return len(ks.read_index(path))
    except ks.CorruptIndexError:
        return None


# ---- build -----------------------------------------------------------------------------------


@index.command()
@with_inputs
@click.option("--write", is_flag=True, help="Write the files beside their logs.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write the files into this folder, under the name of each partition's.",
)  # fmt: skip
@click.option(
    "--interval-bytes", type=click.IntRange(min=0), default=DEFAULT_INTERVAL_BYTES,
    show_default=True, help="The broker's index.interval.bytes.",
)  # fmt: skip
@click.pass_context
def build(
    context: click.Context,
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
    write: bool,
    output: Path | None,
    interval_bytes: int,
) -> None:
    """Build the indexes of offsets and times anew, from batch headers.

    Without --write and --output nothing is written, and the rows say how the files that are
    there differ. `kafkascan recover` does more: it verifies checksums, and builds what
    belongs to producers and transactions, too.
    """
    if write and output is not None:
        raise click.UsageError("--write and --output exclude each other")

    def build_both(one: Input, source: ks.Source, report: Report) -> list[dict[str, Any]]:
        name = ks.parse_segment_name(one.path.name)
        if name is None or name.kind != "log" or name.base_offset is None:
            return []
        table = join_tables(list(report.tables(source)))
        place = {"base_offset": name.base_offset, "interval_bytes": interval_bytes}
        files = {
            "index": ks.build_offset_index(table, **place),
            "timeindex": ks.build_time_index(table, **place),
        }
        return [
            one.place | _built(one.path, kind, entries, _target(one, write, output), report)
            for kind, entries in files.items()
        ]

    session = Session(paths, memory_map=memory_map, drop_cache=drop_cache, shows_progress=True)
    found = [row for rows in session.map(build_both, None) for row in rows]
    write_rows(output_format, BUILD_COLUMNS, found)
    context.exit(session.exit_code)


def _target(one: Input, write: bool, output: Path | None) -> Path | None:
    """Return the folder that files are written into; None if they are not."""
    if output is None:
        return one.path.parent if write else None
    folder = output / one.path.resolve().parent.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _built(
    log: Path, kind: str, entries: NDArray[np.void], folder: Path | None, report: Report
) -> dict[str, Any]:
    name = sibling_name(log.name, kind)
    assert name is not None
    there, data = log.with_name(name), entries.tobytes()
    verdict = "missing"
    if there.exists():
        verdict = "same" if there.read_bytes() == data else "differs"
    if folder is not None and (folder != log.parent or verdict != "same"):
        with AtomicFile(folder / name, like=there if there.exists() else log) as file:
            file.stream.write(data)
        verdict = "written"
    elif verdict != "same":
        report.finding(f"{there}: {verdict}")
    return {"file": name, "entries": len(entries), "size": len(data), "verdict": verdict}


# ---- lookup ----------------------------------------------------------------------------------


@index.command()
@click.argument("path", type=InputPath())
@click.option("--offset", type=int, help="Find the batch that holds it, or the next one.")
@click.option("--timestamp", type=Time(), help="Find the first record that is not earlier.")
@click.option(
    "--trust-index", is_flag=True,
    help="Begin where indexes say, as brokers do. By default all headers are walked.",
)  # fmt: skip
@_output_format
@click.pass_context
def lookup(
    context: click.Context,
    path: Path,
    offset: int | None,
    timestamp: int | None,
    trust_index: bool,
    output_format: str,
) -> None:
    """Say where an offset or a timestamp is, as a broker would find it.

    PATH is a segment or the folder of a partition. Exit code 1: there is no such record.
    """
    if (offset is None) == (timestamp is None):
        raise click.UsageError("name one of --offset and --timestamp")
    found: ks.BatchLocation | ks.RecordLocation | None
    try:
        if offset is not None:
            found = ks.lookup_offset(path, offset, trust_index=trust_index)
        else:
            assert timestamp is not None
            found = ks.lookup_timestamp(path, timestamp, trust_index=trust_index)
    except READ_ERRORS as error:
        context.exit(_unreadable(path, error))
    names = OFFSET_COLUMNS if offset is not None else TIME_COLUMNS
    write_rows(output_format, names, [] if found is None else [vars(found)])
    context.exit(EXIT_CLEAN if found is not None else EXIT_FINDINGS)
