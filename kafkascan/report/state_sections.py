"""The tables of the page about what Kafka's internal topics contain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.texts import printable
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC, Groups, read_groups
from kafkascan.internal_topics.transaction_states import (
    TRANSACTIONS_TOPIC,
    read_transaction_state,
)
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
_UNFINISHED = "Transactions that coordinators have not finished"
_TRANSACTION_COLUMNS = {
    "Transactional id": False, "State": False, "Producer id": True, "Partitions": False,
    "Started at": False,
}  # fmt: skip
_RUNNING = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def state_tables(logs: LogsLike, facts: Facts) -> list[PageTable]:
    """Return the tables of Kafka's own topics that are among the logs."""
    topics = {log.topic for log in facts.logs}
    tables = []
    if GROUPS_TOPIC in topics:
        tables.append(_read("Consumer groups", "groups", lambda: _groups(logs)))
    if TRANSACTIONS_TOPIC in topics:
        tables.append(_read(_UNFINISHED, "transactions", lambda: _transactions(logs)))
    return [one for one in tables if one.rows]


def _read(title: str, what: str, read: Callable[[], PageTable]) -> PageTable:
    """Return a table, or one that says why it cannot be read."""
    try:
        return read()
    except (KafkaScanError, OSError) as error:
        reason = printable(f"The {what} cannot be read: {error}")
        return page_table(title, {"Reason": False}, [[reason]])


def _groups(logs: LogsLike) -> PageTable:
    return _group_table(read_groups(_log_dir_of(logs)))


def _transactions(logs: LogsLike) -> PageTable:
    """Return the transactions that their coordinators have not finished, the oldest first."""
    states = read_transaction_state(_log_dir_of(logs))
    found = [row for row in states.transactions.rows() if row["status"] in _RUNNING]
    found.sort(key=lambda row: row["start_timestamp"])
    title = _UNFINISHED if states.is_exact else f"{_UNFINISHED} (incomplete)"
    return page_table(
        title, _TRANSACTION_COLUMNS, [_transaction(row) for row in found], noun="transactions"
    )


def _transaction(row: dict[str, Any]) -> list[str]:
    partitions = [
        f"{one['topic']}-{number}" for one in row["partitions"] for number in one["partitions"]
    ]
    start = row["start_timestamp"]
    return [
        printable(row["transactional_id"]),
        row["status"],
        str(row["producer_id"]),
        printable(", ".join(partitions)),
        "" if start is None or start < 0 else time_text(start),
    ]


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
