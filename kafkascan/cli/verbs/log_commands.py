"""Commands about whole logs: audit, txns, producers, count, diff, advise, report."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

import kafkascan as ks
from kafkascan.analysis.analysis_schemas import (
    ADVICE_SCHEMA,
    COUNT_SCHEMA,
    DEFAULT_CHOICES,
    DIFF_SCHEMA,
    PRODUCER_SCHEMA,
    TRANSACTION_SCHEMA,
)
from kafkascan.auditing.audit_schemas import FINDING_SCHEMA
from kafkascan.cli.exit_codes import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from kafkascan.cli.shared_options import (
    ALL_OFFSETS,
    JSON_REPORT,
    KEEP_CACHE,
    NATURAL,
    NOW,
    PATH,
    POSITIVE,
    THREADS,
    TIMEOUT,
    VERIFY,
    InputPath,
    Integer,
    OutputPath,
    option,
    table_command,
    usage_errors,
    with_logs,
    with_run,
)
from kafkascan.cli.tier_inputs import CLUSTER, TierOptions, with_tier

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport, Run
    from kafkascan.logs.log_finding import PartitionFilter
    from kafkascan.tables.table import AnyTable

# Findings of a kind in the table of an audit: a kind that many files have does not hide the others.
_LISTED = 10
_STATES = ("open", "hanging", "empty", "aborted", "committed", "all")

# ---- audit -----------------------------------------------------------------------------------


@click.command()
@with_logs
@with_run(FINDING_SCHEMA, to_file=True)
@THREADS
@VERIFY
@option("--deep", help="Also decode all records.")
@KEEP_CACHE
@option("--alarms", help="Show only warnings and errors, no notes.")
@option("--all-findings",
        help=f"List all findings in a table, not only {_LISTED} of each kind, as other formats"
        " do.")  # fmt: skip
@option("--max-message-bytes BYTES", type=POSITIVE,
        show_default="each topic's max.message.bytes, from the data directory's metadata log",
        help="Report batches larger than BYTES bytes.")  # fmt: skip
@option("--many-producers N", type=POSITIVE, default=10_000,
        help="Report partitions with more than N producers.")  # fmt: skip
@NOW
@TIMEOUT
@CLUSTER
@with_tier
def audit(
    run: Run,
    paths: list[Path],
    wanted: PartitionFilter,
    alarms: bool,
    all_findings: bool,
    tier_options: TierOptions,
    **options: Any,
) -> None:
    """Check logs for damage, inconsistencies and risks.

    Prints a row per kind of finding and file, with the position and offset of the first one. Side
    files (indexes, snapshots, checkpoints) are checked, too. If no broker has locked the data
    directory, open transactions are as old as they were at the latest write to their log, unless
    --now is given. The logs of a data directory are compared with Kafka's own topics in it:
    committed offsets, coordinators of transactions, assigned partitions. Logs in several of the
    data directories are findings. Of remote storage, objects and manifests are checked, too. Exit
    code 1: there are warnings or errors, not only notes.
    """
    from kafkascan.auditing.cluster_checks import AuditedDirs
    from kafkascan.cli.run import FindingReport

    audited = AuditedDirs(paths)

    def work(path: Path, report: FindingReport) -> ks.auditing.Audit:
        from kafkascan.logs.data_dir_lock import UNCLEAN_SHUTDOWN, had_clean_shutdown, is_locked

        logs = tier_options.logs_at(path, wanted, report, options["cluster"])
        found = ks.audit(logs, on_progress=run.show_progress, other_dirs=audited, **options)
        for line in _damage_lines(found):
            report.add(line)
        if had_clean_shutdown(found.path) is False and not is_locked(found.path):
            report.add(f"{path}: {UNCLEAN_SHUTDOWN}", is_note=True)
        for message in found.unchecked:
            report.add(f"{path}: {message}", is_note=True)
        report.exit_code = _audit_exit_code(found)
        return found.only_alarms() if alarms else found

    with run.progress("bytes"):
        found = run.each(paths, work)
    if duplicates := _duplicates(paths, found):
        run.raise_exit_code(EXIT_FINDINGS)
        found.append(ks.auditing.Audit(Path(), duplicates))
    others = FindingReport()
    if run.output.output_format == "table" and not all_findings:
        first = [one.first_of_each_kind(_LISTED) for one in found]
        found = [shown for shown, _ in first]
        for symbol, count in sum((left for _, left in first), Counter()).items():
            more = f"{count:,} more findings of this kind; --all-findings lists them"
            others.add(f"{symbol}: {more}", is_note=True)
    run.output.write_tables(FINDING_SCHEMA, found)
    run.print_report(others)


def _damage_lines(found: ks.auditing.Audit) -> list[str]:
    """Return that segments are damaged, and the command that copies the intact batches."""
    from kafkascan.logs.data_dir_lock import had_clean_shutdown
    from kafkascan.recovery.recovery_results import damage_headline

    segments = {Path(one.path) for one in found.damage}
    if not segments:
        return []
    is_lasting = bool(had_clean_shutdown(found.path))
    headline, command = damage_headline(found.path, segments, is_lasting=is_lasting)
    return [f"{found.path}: {headline}. To copy the intact batches:", f"    {command}"]


def _duplicates(paths: list[Path], found: list[ks.auditing.Audit]) -> list[ks.auditing.LogFinding]:
    """Return logs that a broker has in several data dirs, which no audit of one of them finds."""
    if len(found) < 2:
        return []
    known = {one.path for audit in found for one in audit.findings if one.symbol == "DUPLICATE_LOG"}
    readable = {audit.path for audit in found}
    duplicates = ks.auditing.find_duplicate_logs(*(path for path in paths if path in readable))
    return [one for one in duplicates if one.path not in known]


def _audit_exit_code(found: ks.auditing.Audit) -> int:
    if any(one.symbol in ("UNREADABLE", "MISSING_KEY") for one in found.findings):
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if found.alarms else EXIT_CLEAN


# ---- txns ------------------------------------------------------------------------------------


@table_command(
    TRANSACTION_SCHEMA, THREADS, ALL_OFFSETS,
    option("--state", type=_STATES, default="open", help="Show only transactions in this state."),
    NOW, TIMEOUT,
)  # fmt: skip
def txns(path: Any, report: FindingReport, state: str, **options: Any) -> AnyTable:
    """List transactions: open, hanging, aborted, committed.

    A transaction hangs if it is open for longer than --timeout-ms, as in `kafka-transactions
    find-hanging`; the column `command` contains the command that aborts it. A transaction that its
    coordinator has as Ongoing within its own timeout does not hang: __transaction_state in the same
    data directory is compared. Ages are relative to age_at. The clock of this time is `now` if a
    broker has locked the data directory or --now is given, otherwise the `latest_write` to the
    log. Exit code 1: a transaction hangs.
    """
    found = ks.read_transactions(path, **options)
    for message in found.hanging_messages:
        report.add(message)
    selected = found.select(_in_state(found, state))
    if not len(selected):
        kind = "" if state == "all" else f"{state} "
        report.add(f"{getattr(path, 'path', path)}: no {kind}transactions", is_note=True)
    return selected


def _in_state(found: ks.analysis.Transactions, state: str) -> Any:
    if state in ("open", "hanging", "empty"):
        return getattr(found, f"is_{state}")
    if state == "all":
        return found.spans["log"] >= 0
    return found.spans["state"] == ks.broker_state.TransactionState[state.upper()]


# ---- producers, count ------------------------------------------------------------------------


@table_command(
    PRODUCER_SCHEMA, THREADS, ALL_OFFSETS,
    option("--sample N", type=NATURAL, default=0,
           help="Decompress N batches of each producer to compute its compression ratio."),
)  # fmt: skip
def producers(path: Any, report: FindingReport, **options: Any) -> AnyTable:
    """List producers: volume, batching, codecs, sequence errors.

    Prints a row per producer and partition. The producer_id -1 stands for all batches without
    a producer id.
    """
    return ks.read_producers(path, **options)


@table_command(
    COUNT_SCHEMA, THREADS, ALL_OFFSETS,
    option("--deep",
           help="Decompress messages of magic 0 and 1, whose headers do not contain a record"
           " count."),
    KEEP_CACHE,
)  # fmt: skip
def count(path: Any, report: FindingReport, **options: Any) -> AnyTable:
    """Count records: all, committed, aborted and open ones.

    Prints a row per partition. is_exact is false if a part of the log could not be read, if it
    contains compressed messages of magic 0 or 1, whose records only --deep can count, or segments
    with the same offsets. Exit code 1: a row is not exact.
    """
    return ks.count_records(path, **options)


# ---- diff -------------------------------------------------------------------------------------


@click.command()
@click.argument("left", type=InputPath())
@click.argument("right", required=False, type=InputPath())
@option("--shifted", help="Allow the same content at different offsets.")
@option("--compacted",
        help="Allow records to be missing in either log, because the topics are compacted. By"
        " default they may be missing below the offsets in cleaner-offset-checkpoint.")  # fmt: skip
@option("--save FILE", type=OutputPath(),
        help="Write the fingerprints of LEFT to a .parquet file, to compare them on another"
        " host.")  # fmt: skip
@ALL_OFFSETS
@JSON_REPORT
@with_run(DIFF_SCHEMA, to_file=True, rows="ranges")
@THREADS
def diff(
    run: Run,
    left: Path,
    right: Path | None,
    shifted: bool,
    compacted: bool,
    save: Path | None,
    report: Path | None,
    **options: Any,
) -> None:
    """Compare replicas, a backup or a mirror by batch headers.

    Prints a row per range of offsets that differs. Ranges that retention, replication lag or
    compaction explain do not count as differences (is_difference is false). Logs that differ are
    read again if a running broker changed one of them meanwhile. Exit code 1: there are
    differences.

    LEFT and RIGHT are data directories, partition directories, tar archives of directories,
    segment files, URLs of them, or files of fingerprints. In directories and archives, only the
    segments that a broker would load are read. Records are not read.
    """
    from kafkascan.cli.output import RowOutput

    if (right is None) == (save is None):
        raise click.UsageError("give RIGHT to compare with, or --save FILE")
    if save is not None:
        _save_fingerprints(run, left, save, options)
        return
    offsets: Literal["same", "shifted"] = "shifted" if shifted else "same"

    def compare(path: Path, findings: FindingReport) -> ks.analysis.LogDiff:
        assert right is not None
        result = ks.diff_logs(path, right, offsets=offsets, compacted=compacted, **options)
        findings.add_problems(result.notes)
        for one in result.partitions:
            _add_differences(findings, one)
        return result

    results = run.each([left], compare)
    for result in results:
        if report is not None:
            RowOutput("json", report).write_text(result.to_json())
    run.output.write_tables(DIFF_SCHEMA, results)


def _save_fingerprints(run: Run, logs: Path, target: Path, options: dict[str, Any]) -> None:
    def save(path: Path, findings: FindingReport) -> None:
        found = ks.analysis.read_fingerprints(path, **options)
        findings.add_problems(found.problems)
        with usage_errors():
            found.save(target)

    run.each([logs], save)


def _add_differences(findings: FindingReport, one: ks.analysis.PartitionDiff) -> None:
    """Add the damage in two logs, and a line about how they differ."""
    name = f"{one.topic}-{one.partition}"
    findings.add_problems(one.problems)
    if not (one.is_in_left and one.is_in_right):
        findings.add(f"{name}: exists only in {'LEFT' if one.is_in_left else 'RIGHT'}")
    elif one.differences:
        count = len(one.differences)
        ranges = "1 range" if count == 1 else f"{count} ranges"
        findings.add(
            f"{name}: differs from offset {one.first_divergence} on, in {ranges}{_truncation(one)}"
        )


def _truncation(one: ks.analysis.PartitionDiff) -> str:
    """Return what leader epochs say about the differences of two logs."""
    for side, other, diverging in (
        ("LEFT", "RIGHT", one.left_diverging_offset),
        ("RIGHT", "LEFT", one.right_diverging_offset),
    ):
        if diverging is not None:
            return f"; {side} would be truncated to {diverging} if it followed {other}"
    cut = one.truncation_offset
    return "" if cut is None else f"; a follower would truncate its log to {cut}"


# ---- advise -----------------------------------------------------------------------------------


@table_command(
    ADVICE_SCHEMA, THREADS, ALL_OFFSETS,
    option("--codec CODEC[:LEVEL]", "choices", multiple=True,
           show_default=", ".join(DEFAULT_CHOICES),
           help="Codec to try; may be given several times."),
    option("--by", type=("topic", "producer"), default="topic",
           help="Sample batches per topic or per producer."),
    option("--sample N", type=POSITIVE,
           show_default="100; fewer of more than 50: 5000 in all, but 3 of each",
           help="Number of batches to sample per topic or producer."),
    option("--seed", type=Integer(), default=0, help="Seed of the random selection of batches."),
)  # fmt: skip
def advise(path: Any, report: FindingReport, choices: Sequence[str], **options: Any) -> AnyTable:
    """Estimate the saving of other codecs by compressing samples.

    Prints a row per codec: the compression ratio (uncompressed size to compressed size), the
    estimated saving as a fraction of the bytes stored now, and the speeds in MB of records per
    second on one thread, with the codec libraries that are installed here.
    """
    return ks.advise(path, choices=choices or DEFAULT_CHOICES, **options)


# ---- report ----------------------------------------------------------------------------------


@click.command()
@PATH
@option("-o --output FILE", type=OutputPath(),
        help="Write the page to FILE (atomically). Required.")  # fmt: skip
@option("--title TEXT", show_default="PATH", help="Title of the page.")
@VERIFY
@ALL_OFFSETS
@option("--advice", help="Also estimate the savings of other codecs (slow).")
@THREADS
def report(path: Path, output: Path | None, **options: Any) -> None:
    """Write an HTML page about logs: findings, plots and tables.

    The page needs no network and contains no scripts. Exit code 1: it lists warnings or errors.

    PATH is a data directory, a partition directory, a tar archive of directories, a segment
    file, or a URL of one. In directories and archives, only the segments that a broker would
    load are read.
    """
    from kafkascan.cli.output import RowOutput
    from kafkascan.cli.run import Run

    if output is None:
        command = f"kafkascan report {shlex.quote(str(path))} -o report.html"
        raise click.UsageError(f"-o FILE is missing:\n    {command}")

    def build(path: Path, findings: FindingReport) -> ks.report.Report:
        with usage_errors():
            page = ks.build_report(path, **options)
        for line in _damage_lines(page.audit):
            findings.add(line)
        findings.exit_code = _audit_exit_code(page.audit)
        if findings.exit_code:
            findings.add(f"{output}: the page lists warnings or errors", is_note=True)
        return page

    run = Run(RowOutput("html", output))
    for page in run.each([path], build):
        page.write(output)
    click.get_current_context().exit(run.exit_code)
