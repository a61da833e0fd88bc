"""Commands that repair logs: recover, salvage."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource

import kafkascan as ks
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.cli.exit_codes import EXIT_UNREADABLE
from kafkascan.cli.shared_options import (
    JSON_REPORT,
    NATURAL,
    SIZE,
    THREADS,
    DiskPath,
    IntegerRange,
    interval_bytes,
    option,
    with_destination,
    with_dry_run,
    with_run,
)
from kafkascan.format.texts import printable
from kafkascan.recovery.recovery_schemas import RECOVERY_SCHEMA, SALVAGE_SCHEMA

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport, Run

# Bytes that take some seconds to read.
_LONG_PASS = 1 << 30
# Changes of one kind that are listed one by one.
_LISTED = 3
_Changes: TypeAlias = "list[tuple[ks.recovery.PartitionRecovery, ks.recovery.Change]]"
# Options of `recover` that decide what it changes.
_SETTINGS = frozenset((
    "server_properties", "backup", "mark_clean", "verify", "broker_epoch", "recovery_point",
    "log_start_offset", "interval_bytes", "broker_interval_bytes", "follow_links", "tiered_topics",
))  # fmt: skip
_DONE = {"truncate": "truncated", "delete": "deleted", "split": "split"}


# ---- recover ---------------------------------------------------------------------------------


@click.command()
@click.argument("paths", nargs=-1, type=DiskPath())
@option("--server-properties FILE", type=DiskPath(),
        help="The broker's configuration file: its log.dirs, if there are no PATHS, and its"
        " settings for loading logs, such as log.index.interval.bytes.")  # fmt: skip
@with_dry_run("write")
@option("--write", help="Write the indexes, producer snapshots and leader epochs.")
@option("--truncate",
        help="With --write: also truncate logs after their last valid batch, and split segments"
        " that span more offsets than an index can address.")  # fmt: skip
@option("--backup/--no-backup", default=True,
        help="Keep replaced files, deleted files and truncated bytes next to the log, as .bak"
        " files.")  # fmt: skip
@option("--mark-clean/--no-mark-clean", default=True,
        help="Mark a fully recovered data directory as cleanly shut down, so that the broker skips"
        " recovery.")  # fmt: skip
@option("--verify/--no-verify", default=None,
        show_default="verify data directories that are marked as shut down cleanly",
        help="Verify also the checksums of segments below the recovery point, which a broker does"
        " not read. This is a pass over all bytes.")  # fmt: skip
@option("--all-changes",
        help="List every change. By default, changes of one kind that do not shorten a log are"
        " counted, with one example.")  # fmt: skip
@option("--broker-epoch EPOCH", type=IntegerRange(min=-1),
        show_default="the one in the data directory's metadata log",
        help="Broker epoch that --mark-clean writes to .kafka_cleanshutdown.")  # fmt: skip
@option("--recovery-point OFFSET", type=NATURAL,
        show_default="the data directory's recovery-point-offset-checkpoint",
        help="Recover segments from OFFSET on; 0 recovers all of them.")  # fmt: skip
@option("--log-start-offset OFFSET", type=NATURAL,
        show_default="the data directory's log-start-offset-checkpoint",
        help="First offset of the log.")  # fmt: skip
@interval_bytes("each topic's setting in the metadata log, or --broker-interval-bytes")
@option("--broker-interval-bytes BYTES", type=SIZE,
        show_default=f"the setting in --server-properties, or {DEFAULT_INTERVAL_BYTES}",
        help="Bytes of log between two index entries for topics without a setting of their own: the"
        " broker's log.index.interval.bytes.")  # fmt: skip
@option("--follow-links", help="Change files behind symbolic links inside partition directories.")
@option("--tiered-topic TOPIC", "tiered_topics", multiple=True,
        show_default="the topics with remote.storage.enable in the data directory's metadata log",
        help="Topic whose older segments are in remote storage. Can be repeated.")  # fmt: skip
@with_run(RECOVERY_SCHEMA, to_file=True, rows="rows, one per partition")
@THREADS
def recover(
    run: Run,
    paths: tuple[Path, ...],
    server_properties: Path | None,
    write: bool,
    truncate: bool,
    all_changes: bool,
    tiered_topics: tuple[str, ...],
    **options: Any,
) -> None:
    """Recover logs as a broker does after an unclean shutdown.

    Without --write this is a dry run: nothing is changed, and the changes that a broker would
    make are listed on stderr, with the offsets that are lost. Fails if a running broker uses the
    data directory. Exit code 1: changes remain to be made, records were discarded, or a log has
    damage that its recovery does not remove.

    PATHS are data directories or partition directories: name all data directories of a broker
    together. Only the segments that a broker would load are read. KRaft's metadata log is
    skipped.
    """
    if not paths and server_properties is None:
        raise click.UsageError("PATHS or --server-properties are needed")
    if truncate and not write:
        raise click.UsageError("--truncate needs --write")

    def work(_: Path, report: FindingReport) -> ks.recovery.Recovery:
        return ks.recover(
            paths or None,
            server_properties=server_properties,
            write=write,
            truncate=truncate,
            tiered_topics=tiered_topics or None,
            on_progress=lambda _, done, total: run.show_progress(done, total),
            on_verify=lambda found, size: _announce_pass(run, found, size),
            **options,
        )

    with run.progress("partitions"):
        results = run.each([*paths, server_properties or Path()][:1], work)
    for result in results:
        run.print_report(_lasting_damage(result))
        run.print_report(_unverified(result))
        _print_problems(run, result)
        run.output.write_tables(RECOVERY_SCHEMA, [result])
        run.print_report(_endings(result))
        run.print_report(_verdict(result, write=write))
        for report in _recovery_reports(result, all_changes=all_changes):
            run.print_report(report)
        if write and options["mark_clean"]:
            run.print_report(_not_marked(result))
        if not write:
            run.print_report(_writing_command(result))


def _announce_pass(run: Run, paths: list[Path], size: int) -> None:
    """Say what takes long, before it does: nobody asked for it."""
    from rich.filesize import decimal

    if size >= _LONG_PASS:
        run.print(
            f"{', '.join(map(str, paths))}: shut down cleanly, so a broker would recover nothing:"
            f" verifying the checksums of all {decimal(size)} of its logs; --no-verify leaves that"
            " out"
        )


def _lasting_damage(result: ks.recovery.Recovery) -> FindingReport:
    """Return that there is damage which no recovery repairs, and what copies the rest."""
    from kafkascan.cli.run import FindingReport
    from kafkascan.recovery.recovery_results import damage_headline

    report = FindingReport()
    for path in result.paths:
        logs = (one for one in result.partitions if path in (one.path, one.path.parent))
        segments = [log.path / name for log in logs for name in log.damaged_segments]
        if segments:
            headline, command = damage_headline(path, segments, is_lasting=True)
            report.add(f"{path}: {headline}. To copy the intact batches:")
            report.add(f"    {command}")
    return report


def _unverified(result: ks.recovery.Recovery) -> FindingReport:
    """Return what was not verified: damage there is not known."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    unverified = [segment for one in result.partitions for segment in one.unverified]
    if unverified:
        size = sum(segment.size for segment in unverified)
        where = ", ".join(map(str, result.paths))
        report.add(
            f"{where}: {len(unverified)} segments ({size} bytes) below the recovery points were"
            " not verified, as in a broker: use --verify, or `kafkascan verify`",
            is_note=True,
        )
    return report


def _print_problems(run: Run, result: ks.recovery.Recovery | ks.recovery.Salvage) -> None:
    """Print the problems of logs; any error of a log means that it has no result."""
    run.print_problems(result.problems)
    if any(one.error is not None for one in result.partitions):
        run.raise_exit_code(EXIT_UNREADABLE)


def _recovery_reports(
    result: ks.recovery.Recovery, *, all_changes: bool
) -> Iterator[FindingReport]:
    """
    Yield reports about the changes of a recovery: what matters most comes first.

    Parameters
    ----------
    result : Recovery
    all_changes : bool
        Whether to list every change; otherwise changes of one kind that do not shorten a log are
        counted.
    """
    made = [(one, change) for one in result.partitions for change in one.applied]
    left = [
        (one, change)
        for one in result.partitions
        for change in one.changes
        if change not in one.applied
    ]
    yield _discarded(made)
    yield _shortened(left)
    yield _salvage_hint(result, left)
    yield _other_changes(left, len(left) if all_changes else _LISTED)
    yield _notes(result)


def _discarded(made: _Changes) -> FindingReport:
    """Return the parts of logs that were discarded; preallocated zeros are a note."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    for log, change in made:
        if change.shortens_log:
            lost = log.discarded.get(change.name)
            is_note = lost is None or lost.is_zeros
            action = _DONE.get(change.action, change.action)
            loss = _loss(lost, "discarded")
            report.add(_line(log.path, change, action) + loss, is_note=is_note)
    return report


def _shortened(left: _Changes) -> FindingReport:
    """Return the changes that discard a part of a log, or split one."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    for log, change in left:
        if change.shortens_log:
            loss = _loss(log.discarded.get(change.name), "discards")
            report.add(_line(log.path, change, change.action) + loss)
    return report


def _loss(lost: ks.recovery.DiscardedRange | None, verb: str) -> str:
    """Return a clause about what a change of a log discards."""
    if lost is None:
        return ""
    if lost.is_zeros:
        return f"; {verb} {lost.size:,} bytes, no records"
    if not lost.batches:
        offsets = f"from offset {lost.first_offset} on, no intact batches"
        return f"; {verb} {lost.size:,} bytes, {offsets}"
    offsets = f"offsets {lost.first_offset} to {lost.last_offset} or later"
    intact = f"{lost.batches:,} intact batches of {lost.records:,} records"
    return f"; {verb} {lost.size:,} bytes, {offsets}, with {intact}"


def _salvage_hint(result: ks.recovery.Recovery, left: _Changes) -> FindingReport:
    """Return the command that keeps intact batches which the remaining changes discard."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    logs = {log.path: log for log, change in left if change.name in log.discarded}
    records = sum(log.salvageable_records for log in logs.values())
    if not records:
        return report
    paths = [log.path for log in logs.values() if log.salvageable_records]
    if len(paths) > 1:
        paths = [one for one in result.paths if any(one in (log, log.parent) for log in paths)]
    kept = f"{records:,} records of intact batches after the damage"
    report.add(f"recovery discards {kept}; `salvage` keeps them in a copy:", is_note=True)
    for path in paths:
        report.add(f"    kafkascan salvage {shlex.quote(str(path))} COPY", is_note=True)
    return report


def _endings(result: ks.recovery.Recovery) -> FindingReport:
    """Return how the brokers of data directories ended, and the logs that are skipped."""
    from kafkascan.cli.run import FindingReport
    from kafkascan.logs.data_dir_lock import UNCLEAN_SHUTDOWN, had_clean_shutdown
    from kafkascan.logs.metadata_log import METADATA_PARTITION

    report = FindingReport()
    for path in result.paths:
        is_data_dir = had_clean_shutdown(path) is not None
        if is_data_dir and path not in result.had_clean_shutdown:
            report.add(f"{path}: {UNCLEAN_SHUTDOWN}", is_note=True)
        if is_data_dir and (path / METADATA_PARTITION).is_dir():
            skipped = "skipped: a broker recovers it at each start; `kafkascan audit` checks it"
            report.add(f"{path / METADATA_PARTITION}: {skipped}", is_note=True)
    return report


def _verdict(result: ks.recovery.Recovery, *, write: bool) -> FindingReport:
    """Return whether changes were made, and how many."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    changes = sum(len(one.changes) for one in result.partitions)
    made = sum(len(one.applied) for one in result.partitions)
    where = ", ".join(map(str, result.paths))
    if write:
        report.add(f"{where}: recovered: {made:,} of {changes:,} changes made", is_note=True)
    elif changes:
        report.add(f"{where}: a dry run: nothing was changed", is_note=True)
    return report


def _writing_command(result: ks.recovery.Recovery) -> FindingReport:
    """Return the command that makes the changes of a dry run, with the options of this one."""
    from kafkascan.cli.run import FindingReport
    from kafkascan.recovery.recovery_results import writing_command

    report = FindingReport()
    if command := writing_command(result, *_given_options()):
        report.add("with the broker stopped, this command makes the changes:", is_note=True)
        report.add(f"    {command}", is_note=True)
    return report


def _given_options() -> Iterator[str]:
    """Yield the options of this command that decide what is recovered, as they were given."""
    context = click.get_current_context()
    for one in context.command.params:
        is_given = context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
        if one.name not in _SETTINGS or not is_given:
            continue
        value = context.params[one.name]
        if isinstance(value, bool):
            yield (one.opts if value else one.secondary_opts)[0]
        else:
            for each in value if one.multiple else (value,):
                yield from (one.opts[0], str(each))


def _other_changes(left: _Changes, listed: int) -> FindingReport:
    """Return the other changes, by kind; those of a frequent kind are counted."""
    from kafkascan.cli.run import FindingReport

    kinds: dict[tuple[str, str, str], list[str]] = {}
    for log, change in left:
        if not change.shortens_log:
            key = (change.action.value, _kind_of(change.name), change.reason)
            kinds.setdefault(key, []).append(_line(log.path, change, change.action))
    report = FindingReport()
    for (action, kind, reason), lines in sorted(kinds.items(), key=lambda one: len(one[1])):
        if len(lines) <= listed:
            for line in lines:
                report.add(line)
        else:
            example = lines[0].partition(f": {action}: ")[0]
            report.add(f"{len(lines)} {kind} files: {action}: {reason} (such as {example})")
    return report


def _kind_of(name: str) -> str:
    """Return the file name without its offset."""
    digits, dot, kind = name.partition(".")
    return dot + kind if digits.isdigit() and dot else name


def _line(folder: Path, change: ks.recovery.Change, action: str) -> str:
    return f"{folder / change.name}: {action}: {change.reason}"


def _notes(result: ks.recovery.Recovery) -> FindingReport:
    """Return the state of the data directories."""
    from kafkascan.cli.run import FindingReport

    notes = [
        f"{path}: marked as shut down cleanly before: a broker would load these logs without"
        " recovery"
        for path in result.had_clean_shutdown
    ]
    notes += [
        f"{path}: marked as shut down cleanly, broker epoch {result.broker_epoch}"
        for path in result.marked_clean
    ]
    report = FindingReport()
    for note in notes:
        report.add(note, is_note=True)
    return report


def _not_marked(result: ks.recovery.Recovery) -> FindingReport:
    """Return why directories are not marked as shut down cleanly after a recovery."""
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    for path in result.paths:
        if path not in (*result.marked_clean, *result.had_clean_shutdown):
            reason = "it is no data directory, or has folders that are not those of logs"
            if not result.is_in_order:
                reason = "changes remain, for which --truncate may be missing"
            elif result.has_alarms:
                reason = "a log has an error that no recovery repairs"
            report.add(f"{path}: not marked as shut down cleanly: {reason}", is_note=True)
    return report


# ---- salvage ---------------------------------------------------------------------------------


@click.command()
@with_destination
@option("--doubtful", type=("keep", "drop"), default="keep",
        help="Keep or drop batches inside damaged ranges that may be the content of a damaged"
        " record.")  # fmt: skip
@interval_bytes("each topic's setting in the metadata log, or 4096")
@JSON_REPORT
@with_run(SALVAGE_SCHEMA, to_file=True, rows="ranges")
@THREADS
def salvage(
    run: Run, path: Path, destination: Path | None, report: Path | None, **options: Any
) -> None:
    """Copy the intact batches of damaged logs to new logs.

    Prints a row per range that is lost, repaired or a copy. Without DESTINATION nothing is
    written. Exit code 1: there are lost, doubtful or copied ranges, or uncertain repairs.

    PATH is a data directory, a partition directory, a tar archive of directories, a segment
    file, or a URL of one. In directories and archives, only the segments that a broker would
    load are read. DESTINATION is a directory that is empty or does not exist.
    """
    from kafkascan.cli.output import RowOutput

    results = run.each([path], lambda one, _: ks.salvage(one, destination, **options))
    for result in results:
        if report is not None:
            RowOutput("json", report).write_text(result.to_json())
        _print_problems(run, result)
        run.print(printable(_kept(result)))
        if result.is_marked_clean:
            run.print(f"{destination}: marked as shut down cleanly")
    run.output.write_tables(SALVAGE_SCHEMA, results)


def _kept(result: ks.recovery.Salvage) -> str:
    """Return a line about what is kept and lost, with the offsets of a single log."""
    segments = [segment for log in result.partitions for segment in log.segments]
    pieces = [piece for segment in segments for piece in segment.pieces]
    records = "" if result.kept_records is None else f" with {result.kept_records:,} records"
    place = f" of {len(result.partitions):,} logs"
    if len(result.partitions) == 1:
        first = min((one.first_offset for one in pieces), default=None)
        last = max((one.last_offset for one in pieces), default=None)
        place = "" if first is None else f" (offsets {first} to {last})"
    ranges = sum(len(segment.losses) for segment in segments)
    noun = "range" if ranges == 1 else "ranges"
    lost = f"{result.lost_bytes:,} bytes lost in {ranges:,} {noun}" if ranges else "nothing lost"
    changed = sum(len(log.changed) for log in result.partitions)
    if changed:
        noun = "file" if changed == 1 else "files"
        lost = f"{lost} of what was read, but {changed:,} {noun} changed meanwhile"
    kept = "would keep" if result.destination is None else "kept"
    return f"{result.path}: {kept} {result.kept_batches:,} batches{records}{place}; {lost}"
