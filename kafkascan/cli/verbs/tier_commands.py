"""Commands about remote storage: restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import kafkascan as ks
from kafkascan.cli.run import FindingReport, Run
from kafkascan.cli.shared_options import PATH, THREADS, DiskPath, with_run
from kafkascan.cli.shown_columns import RESTORE
from kafkascan.cli.tier_inputs import TierOptions, with_tier
from kafkascan.recovery.tier_restore import PartitionRestore, Restore


@click.command()
@PATH
@click.argument("destination", required=False, type=DiskPath())
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME|ID",
    help="Restore only this topic. Can be given several times.",
)  # fmt: skip
@click.option(
    "--new-topic-id", metavar="ID", show_default="the id in the remote storage",
    help="Write ID to partition.metadata: for a cluster in which the topic was created again. A"
    " broker sets a log aside whose topic id the cluster does not know.",
)  # fmt: skip
@with_tier
@with_run(RESTORE, to_file=True)
@THREADS
def restore(
    run: Run,
    path: Path,
    destination: Path | None,
    tier_options: TierOptions,
    topics: tuple[str, ...],
    **options: Any,
) -> None:
    """Copy partitions from tiered storage for a broker.

    Prints a row per partition. The copies are directories that a broker starts on. Without
    DESTINATION nothing is written, and only the listing is read. Every checksum is verified: a
    partition with a damaged segment is not written. Exit code 1: offsets are missing between
    segments, or the remote storage has problems.

    PATH is a directory or URL with the objects. DESTINATION receives a directory for each
    partition, such as a data directory of a broker that is stopped; existing directories of
    partitions are not changed.
    """

    def copy(path: Path, report: FindingReport) -> Restore:
        tier = tier_options.open(path)
        for problem in tier.problems:
            report.add(f"{path}: {problem}")
        return ks.recovery.restore(tier, destination, topics=topics or None, **options)

    results = run.each([path], copy)
    restored = [one for result in results for one in result.partitions]
    for one in restored:
        run.print_report(_findings(one))
    run.output.write_rows(RESTORE, [_row(one) for one in restored])


def _findings(one: PartitionRestore) -> FindingReport:
    report = FindingReport()
    for first, following in one.gaps:
        last = following - 1
        report.add(f"{one.path}: no segment contains the offsets {first} to {last} [MISSING_RANGE]")
    if one.rebuilt:
        names = ", ".join(one.rebuilt[:3]) + (", …" if len(one.rebuilt) > 3 else "")
        reason = "missing or wrong in the remote storage, built from the segments"
        report.add(f"{one.path}: {len(one.rebuilt)} index files ({names}): {reason}", is_note=True)
    if one.error is not None:
        report.add_unreadable(str(one.destination or one.path), one.error)
    return report


def _row(one: PartitionRestore) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "topic_id": one.topic_id,
        "partition": one.partition,
        "segments": one.segments,
        "size": one.size,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "gaps": len(one.gaps),
        "rebuilt": len(one.rebuilt),
        "destination": None if one.destination is None else str(one.destination),
        "error": None if one.error is None else str(one.error),
    }
