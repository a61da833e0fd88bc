"""The tables of the page about what Kafka's internal topics contain."""

from __future__ import annotations

from typing import Any

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.texts import printable
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC, Groups, read_groups
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogsLike
from kafkascan.report.facts import Facts
from kafkascan.report.tables import PageTable, page_table, time_text

_COLUMNS = {
    "Group": False, "Partition": False, "Lag": True, "Committed offset": True,
    "Log end offset": True, "Committed at": False,
}  # fmt: skip
_NAMES = (
    "group", "topic", "partition", "lag", "offset", "log_end_offset", "commit_timestamp",
)  # fmt: skip


def state_tables(logs: LogsLike, facts: Facts) -> list[PageTable]:
    """Return the table of consumer groups, if there are logs of ``__consumer_offsets``."""
    if not any(log.topic == GROUPS_TOPIC for log in facts.logs):
        return []
    try:
        groups = read_groups(_log_dir_of(logs))
    except (KafkaScanError, OSError) as error:
        reason = printable(f"The groups cannot be read: {error}")
        return [page_table("Consumer groups", {"Reason": False}, [[reason]])]
    table = _group_table(groups)
    return [table] if table.rows else []


def _log_dir_of(logs: LogsLike) -> LogDirLike:
    if isinstance(logs, PartitionDir):
        return LogDir(logs.path, [logs])
    return logs if isinstance(logs, LogDir) else str(getattr(logs, "path", logs))


def _group_table(groups: Groups) -> PageTable:
    found = groups.offsets.to_columns()
    committed = list(zip(*(found[name] for name in _NAMES), strict=True))
    committed.sort(key=lambda row: (row[3] is None, -(row[3] or 0)))
    title = "Consumer groups" if groups.is_exact else "Consumer groups (incomplete)"
    return page_table(
        title, _COLUMNS, [_cells(*row) for row in committed], noun="committed offsets"
    )


def _cells(group: str, topic: str, partition: int, *numbers: Any) -> list[str]:
    lag, offset, end, time = numbers
    return [
        printable(group),
        printable(f"{topic}-{partition}"),
        *("" if number is None else f"{number:,}" for number in (lag, offset, end)),
        "" if time is None or time < 0 else time_text(time),
    ]
