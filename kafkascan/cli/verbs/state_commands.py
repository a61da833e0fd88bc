"""Commands about Kafka's own topics: groups, txn-state, share-state, metadata, remote-segments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

import kafkascan as ks
from kafkascan.analysis.analysis_schemas import CONTRADICTION_SCHEMA
from kafkascan.cli.shared_options import (
    AS_OF,
    PATHS,
    Command,
    InputPath,
    NameList,
    OffsetOrTime,
    declare,
    extend_help,
    option,
    usage_errors,
    with_run,
)
from kafkascan.cli.tier_inputs import TierOptions, with_tier
from kafkascan.tables.schema import Schema, schemas_by_name

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport, Run
    from kafkascan.internal_topics.metadata.metadata_reading import Metadata
    from kafkascan.internal_topics.remote_segments import RemoteSegments
    from kafkascan.internal_topics.tier_comparison import TierComparison
    from kafkascan.internal_topics.transaction_states import TransactionStates
    from kafkascan.tables.table import Table
    from kafkascan.tables.table_set import TableSet

_DIRS_HELP = """
PATHS are a broker's data directories, partition directories, tar archives of directories, or URLs
of directories. Only the segments that a broker would load are read.
"""


State = TypeVar("State", bound="TableSet")
Shown: TypeAlias = "tuple[Schema, Sequence[Table]]"


def _state_command(*tables: str) -> Callable[[Command], click.Command]:
    """Declare a command that returns tables of a kind: by default, of the first."""

    def decorate(command: Command) -> click.Command:
        extend_help(command, _DIRS_HELP)

        @functools.wraps(command)
        def call(run: Run, columns: str | None, **arguments: Any) -> None:
            shown: Shown | None = command(run=run, **arguments)
            if shown is not None:
                _write(run, *shown, columns)

        show = option("--show", type=tables, default=tables[0], help="Table to show.")
        columns = option("--columns NAMES",
                         help="Columns to write, separated by commas, or `all`. An unknown name"
                         " lists them.")  # fmt: skip
        run = with_run(to_file=True, is_narrow=True)
        declared: click.Command = click.command()(declare(call, PATHS, run, show, columns, AS_OF))
        return declared

    return decorate


def _read(
    run: Run,
    paths: list[Path],
    read: Callable[[Path], State],
    findings: Callable[[State], Iterable[str]] = lambda found: (),
) -> list[State]:
    """Read each path, and report the problems of the answers and what else they find."""

    def work(path: Path, report: FindingReport) -> State:
        with usage_errors():
            found = read(path)
        report.add_problems(found.problems)
        for message in findings(found):
            report.add(message)
        return found

    return run.each(paths, work)


def _write(run: Run, schema: Schema, tables: Sequence[Table], columns: str | None) -> None:
    """Write tables with the requested columns as one table."""
    if columns is not None:
        try:
            names = NameList(schema.names).convert(columns, None, None)
        except click.BadParameter as error:
            raise click.UsageError(error.message) from None
        run.output = replace(run.output, columns=names)
    run.output.write_tables(schema, tables)


_SELECTED_GROUPS = option("--group GROUP", "selected", multiple=True,
                          help="Show only this group; may be given several times.")  # fmt: skip


@_state_command("offsets", "pending", "groups", "members", "unknown")
@_SELECTED_GROUPS
def groups(
    run: Run, paths: list[Path], show: str, selected: tuple[str, ...], **options: Any
) -> Shown | None:
    """List committed offsets, consumer groups and members.

    --show offsets lists committed offsets, with the lag where the log of the topic is in the same
    directory; offsets committed in a transaction count after its commit. --show pending lists the
    offsets of open transactions, --show unknown the records of unknown types and versions.

    With --format csv and without --columns, offsets are written as kafka-consumer-groups
    --reset-offsets --from-file reads them: group,topic,partition,offset, without a header.

    A row with is_exact false, or without an offset, may lack what compaction has removed. Exit
    code 1: the answer is not complete, because of damage, compaction or unknown records.
    """
    from kafkascan.internal_topics.consumer_groups import Groups

    found = _read(run, paths, lambda path: ks.read_groups(path, **options))
    if selected:
        found = [one.select(selected) for one in found]
    has_columns = click.get_current_context().params["columns"] is not None
    if show == "offsets" and run.output.output_format == "csv" and not has_columns:
        run.output.write_text("".join(one.reset_plan() for one in found))
        return None
    return Groups.schemas[show], [one[show] for one in found]


@_state_command("transactions", "unknown", "contradictions")
def txn_state(run: Run, paths: list[Path], show: str, as_of: Any) -> Shown:
    """List transactional ids and the state of their transactions.

    The rows come from __transaction_state. At the end of the log, they are compared with the open
    transactions of all logs in the same directory: --show contradictions lists transactions that
    no marker will end, because the coordinator has forgotten or ended them. The logs of a running
    broker are read before __transaction_state, and a transaction counts if it is still open after.

    Exit code 1: there are contradictions, or the answer is not complete, because of damage,
    compaction or unknown records.
    """
    from kafkascan.internal_topics.transaction_states import TransactionStates

    contradictions: list[Table] = []

    def read(path: Path) -> TransactionStates:
        if as_of is not None:
            return ks.read_transaction_state(path, as_of=as_of)
        transactions = ks.read_transactions(path)
        states = ks.read_transaction_state(path)
        found = ks.analysis.find_contradictions(states, transactions)
        if len(found):
            found = ks.analysis.lasting_contradictions(found, ks.read_transactions(path))
        contradictions.append(found)
        return states

    def messages(_: TransactionStates) -> list[str]:
        return contradictions[-1]["message"] if as_of is None else []

    if show == "contradictions" and as_of is not None:
        raise click.UsageError("contradictions are known at the end of the log only")
    found = _read(run, paths, read, messages)
    tables = contradictions if show == "contradictions" else [one[show] for one in found]
    schemas = TransactionStates.schemas | schemas_by_name(CONTRADICTION_SCHEMA)
    return schemas[show], tables


@_state_command("partitions", "batches", "unknown")
@_SELECTED_GROUPS
def share_state(
    run: Run, paths: list[Path], show: str, selected: tuple[str, ...], **options: Any
) -> Shown:
    """List start offsets and delivery states of share groups.

    The rows come from __share_group_state. available, acknowledged and archived count the offsets
    from the start offset on that have this state; --show batches lists their ranges, with the
    number of deliveries.

    A row with is_exact false, or without a start offset, lacks records that have been deleted.
    Exit code 1: the answer is not complete, because of damage, deleted or unknown records.
    """
    from kafkascan.internal_topics.share_states import ShareState

    found = _read(run, paths, lambda path: ks.read_share_state(path, **options))
    if selected:
        found = [one.select(selected) for one in found]
    return ShareState.schemas[show], [one[show] for one in found]


@_state_command(
    "topics",
    "brokers",
    "controllers",
    "partitions",
    "configs",
    "features",
    "scram",
    "acls",
    "quotas",
    "tokens",
    "unknown",
    "changes",
)
@option("--diff A B", type=OffsetOrTime(), nargs=2,
        help="Show what changed from A to B, two offsets or times (ISO 8601).")  # fmt: skip
@option("--secrets",
        help="Also show the keys of SCRAM credentials, and the values of secret"
        " settings.")  # fmt: skip
def metadata(
    run: Run,
    paths: list[Path],
    show: str,
    as_of: Any,
    diff: tuple[Any, Any] | None,
    secrets: bool,
) -> Shown:
    """List the brokers, topics and settings of the cluster.

    The rows come from __cluster_metadata: from the last snapshot and the records after it, as a
    controller loads them. --diff A B shows what changed between two moments. With two PATHS,
    --show changes shows how the second directory differs from the first.

    Exit code 1: the answer is not complete, because of damage, a missing snapshot or unknown
    records.
    """
    from kafkascan.internal_topics.metadata.metadata_reading import CHANGE_SCHEMA, Metadata

    moments = [as_of] if diff is None else list(diff)
    if diff is not None and (as_of is not None or len(paths) != 1):
        raise click.UsageError("--diff needs one path, and excludes --as-of")
    if diff is None and show == "changes" and len(paths) != 2:
        raise click.UsageError("changes need --diff A B, or two paths")

    def read(moment: Any, path: Path) -> Metadata:
        return ks.read_metadata(path, as_of=moment, secrets=secrets)

    found: list[Metadata] = []
    for moment in moments:
        found += _read(run, paths, partial(read, moment))
    if diff is not None or show == "changes":
        tables = [ks.internal_topics.diff_metadata(*found)] if len(found) == 2 else []
        show = "changes"
    else:
        tables = [one[show] for one in found]
    schemas = Metadata.schemas | schemas_by_name(CHANGE_SCHEMA)
    return schemas[show], tables


@_state_command("segments", "deletions", "unknown")
@option("--tier PATH", type=InputPath(),
        help="Compare the segments that the records know with the objects in this directory or"
        " URL.")  # fmt: skip
@with_tier
def remote_segments(
    run: Run,
    paths: list[Path],
    show: str,
    as_of: Any,
    tier: Path | None,
    tier_options: TierOptions,
) -> Shown:
    """List the segments in remote storage (tiered storage).

    The rows come from __remote_log_metadata. Consumers read segments in the state
    COPY_SEGMENT_FINISHED only. --show deletions lists partitions that are being deleted.

    If that topic is lost, PATHS can be the remote storage itself: the rows come from the listing
    and its manifests then, and states are not known.

    With --tier, both are compared. The verdict is SAME, UPLOADING, DELETING, or a finding:
    MISSING_OBJECT (consumers may read it, but it is not there), DIFFERENT (sizes, offsets or
    epochs disagree), DELETED (but its objects are there), ORPHAN (no record knows it), UNDECIDED
    (no record that was read knows it, and others were not read).

    Exit code 1: the answer is not complete, because of damage or unknown records; with --tier,
    also findings.
    """
    from kafkascan.internal_topics.remote_segments import RemoteSegments

    if tier is not None:
        return _compare_with_tier(run, paths, as_of, tier, tier_options)

    def read(path: Path) -> RemoteSegments:
        place = tier_options.find(path) or path
        return ks.internal_topics.read_remote_segments(place, as_of=as_of)

    found = _read(run, paths, read)
    return RemoteSegments.schemas[show], [one[show] for one in found]


def _compare_with_tier(
    run: Run, paths: list[Path], as_of: Any, tier: Path, tier_options: TierOptions
) -> Shown:
    from kafkascan.internal_topics.tier_comparison import COMPARED_SCHEMA, TierComparison

    source = click.get_current_context().get_parameter_source("show")
    if source is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--show and --tier cannot be combined")
    if len(paths) != 1:
        raise click.UsageError("--tier needs one path with the records of the cluster")

    def compare(path: Path) -> TierComparison:
        stored = tier_options.open(tier)
        return ks.internal_topics.compare_remote_segments(path, stored, as_of=as_of)

    found = _read(run, paths, compare, TierComparison.sentences)
    return COMPARED_SCHEMA, [one.segments for one in found]
