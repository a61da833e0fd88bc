"""Commands about remote storage: restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafkascan as ks
from kafkascan.cli.exit_codes import EXIT_UNREADABLE
from kafkascan.cli.shared_options import (
    THREADS,
    option,
    table_command,
    with_destination,
)
from kafkascan.cli.tier_inputs import TierOptions, with_tier
from kafkascan.recovery.recovery_schemas import RESTORE_SCHEMA

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport
    from kafkascan.recovery.tier_restore import PartitionRestore
    from kafkascan.tables.table import AnyTable


@table_command(
    RESTORE_SCHEMA,
    option("--topic NAME|ID", "topics", multiple=True,
           help="Restore only this topic. Can be given several times."),
    option("--new-topic-id ID", show_default="the id in the remote storage",
           help="Write ID to partition.metadata: for a cluster in which the topic was created"
           " again. A broker sets a log aside whose topic id the cluster does not know."),
    with_tier,
    THREADS,
    inputs=with_destination,
)  # fmt: skip
def restore(
    path: Any,
    report: FindingReport,
    destination: Path | None,
    tier_options: TierOptions,
    topics: tuple[str, ...],
    **options: Any,
) -> AnyTable:
    """Copy partitions from tiered storage for a broker.

    Prints a row per partition. The copies are directories that a broker starts on. Without
    DESTINATION nothing is written, and only the listing is read. Every checksum is verified: a
    partition with a damaged segment is not written. Exit code 1: offsets are missing between
    segments, or the remote storage has problems.

    PATH is a directory or URL with the objects. DESTINATION receives a directory for each
    partition, such as a data directory of a broker that is stopped; existing directories of
    partitions are not changed.
    """
    tier = tier_options.open(path)
    restored = ks.recovery.restore(tier, destination, topics=topics or None, **options)
    for one in restored.partitions:
        _add_rebuilt(report, one)
        if one.error is not None:
            report.exit_code = EXIT_UNREADABLE
    return restored


def _add_rebuilt(report: FindingReport, one: PartitionRestore) -> None:
    if one.rebuilt:
        names = ", ".join(one.rebuilt[:3]) + (", …" if len(one.rebuilt) > 3 else "")
        reason = "missing or wrong in the remote storage, built from the segments"
        report.add(f"{one.path}: {len(one.rebuilt)} index files ({names}): {reason}", is_note=True)
