"""The tables of the page: topics, logs, producers, transactions, codecs, Kafka's own topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from kafkascan.analysis.codec_advice import Advice, CodecTrial
from kafkascan.analysis.transactions import Transactions
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from kafkascan.format.texts import printable
from kafkascan.format.times import age_text
from kafkascan.internal_topics.consumer_groups import read_groups
from kafkascan.internal_topics.transaction_states import (
    read_transaction_state,
)
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogsLike
from kafkascan.report.facts import Facts, LogFacts
from kafkascan.report.plots import human_size

MAX_ROWS = 200
# A longer table is folded.
_MAX_UNFOLDED = 12

_GROUP_COLUMNS = {
    "Group": False, "Partition": False, "Lag": True, "Committed offset": True,
    "Log end offset": True, "Committed at": False,
}  # fmt: skip
_UNFINISHED = "Transactions that coordinators have not finished"
_TRANSACTION_COLUMNS = {
    "Transactional id": False, "State": False, "Producer id": True, "Partitions": False,
    "Started at": False,
}  # fmt: skip
_RUNNING = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_OFFSETS = ("lag", "offset", "log_end_offset")
_EPOCH = datetime(1970, 1, 1)

Item = TypeVar("Item")
Rows = list[list[str]]


@dataclass(frozen=True)
class PageTable:
    """
    A table of the page.

    Attributes
    ----------
    title : str
    columns : dict of str to bool
        Titles, and whether the column contains numbers.
    rows : list of list of str
    count : int
        Number of rows that there are; `rows` has at most `MAX_ROWS` of them.
    summary : str
        What is seen of a folded table; empty: it is not folded.
    parts : list of PageTable
        Folded tables below this one.
    """

    title: str
    columns: dict[str, bool]
    rows: Rows
    count: int
    summary: str = ""
    parts: list[PageTable] = field(default_factory=list)

    @property
    def more(self) -> int:
        """Number of rows that are left out."""
        return self.count - len(self.rows)

    def cells(self, row: list[str]) -> Iterator[tuple[tuple[str, bool], str]]:
        """Yield the cells of a row with their `columns`."""
        return zip(self.columns.items(), row, strict=True)


def page_tables(
    facts: Facts,
    producers: dict[str, list[Any]],
    transactions: Transactions,
    advised: Advice | None,
) -> list[PageTable]:
    """Return the tables that have rows."""
    tables = [_topic_table(facts), _open_table(transactions), _producer_table(producers)]
    if advised is not None:
        tables.append(_advice_table(advised))
    return [one for one in tables if one.rows]


def page_table(
    title: str,
    columns: dict[str, bool],
    items: Sequence[Item],
    row_of: Callable[[Item], list[str]],
    *,
    noun: str = "",
) -> PageTable:
    """Return a table of items; a long one is folded, with the noun of its rows."""
    summary = f"{len(items):,} {noun}" if noun and len(items) > _MAX_UNFOLDED else ""
    rows = [row_of(one) for one in items[:MAX_ROWS]]
    return PageTable(title, columns, rows, len(items), summary)


# ---- topics and their logs -------------------------------------------------------------------


def _topic_table(facts: Facts) -> PageTable:
    logs = defaultdict(list)
    for log in facts.logs:
        logs[log.topic].append(log)
    topics = sorted(logs.items(), key=lambda one: -sum(log.size for log in one[1]))
    columns = {
        "Topic": False, "Size": True, "Partitions": True, "Segments": True, "Batches": True,
        "Records": True, "Latest timestamp": False, "Codecs": False,
    }  # fmt: skip
    table = page_table("Topics", columns, topics, _topic_row)
    table.parts.extend(_log_table(*one) for one in topics[:MAX_ROWS])
    return table


def _topic_row(of_topic: tuple[str, list[LogFacts]]) -> list[str]:
    topic, logs = of_topic
    summaries = [log.summary for log in logs]
    latest = [one.max_timestamp for one in summaries if one.max_timestamp is not None]
    codecs: Counter[str] = sum((one.codecs for one in summaries), Counter())
    return [
        printable(topic),
        human_size(sum(log.size for log in logs)),
        f"{len(logs):,}",
        f"{sum(log.segments for log in logs):,}",
        f"{sum(one.batches for one in summaries):,}",
        record_count(logs),
        time_text(max(latest)) if latest else "",
        ", ".join(codecs),
    ]


def record_count(logs: list[LogFacts]) -> str:
    """Return the number of records; headers of old formats give a lower bound only."""
    summaries = [log.summary for log in logs]
    uncounted = any(one.uncounted_batches for one in summaries)
    return f"{'≥ ' * uncounted}{sum(one.records for one in summaries):,}"


def _log_table(topic: str, logs: list[LogFacts]) -> PageTable:
    columns = {
        "Log": False, "Size": True, "Segments": True, "Batches": True, "Records": True,
        "First offset": True, "Last offset": True, "Latest timestamp": False, "Codecs": False,
    }  # fmt: skip
    largest = sorted(logs, key=lambda log: -log.size)[:MAX_ROWS]
    noun = "partition" if len(logs) == 1 else "partitions"
    size = human_size(sum(log.size for log in logs))
    summary = f"{printable(topic)}: {len(logs):,} {noun}, {size}"
    return PageTable("", columns, [_log_row(log) for log in largest], len(logs), summary)


def _log_row(log: LogFacts) -> list[str]:
    one = log.summary
    return [
        printable(log.name),
        human_size(log.size),
        f"{log.segments:,}",
        f"{one.batches:,}",
        record_count([log]),
        "" if one.first_offset is None else f"{one.first_offset:,}",
        "" if one.last_offset is None else f"{one.last_offset:,}",
        "" if one.max_timestamp is None else time_text(one.max_timestamp),
        ", ".join(one.codecs),
    ]


# ---- transactions and producers --------------------------------------------------------------


def _open_table(transactions: Transactions) -> PageTable:
    columns = {
        "Log": False, "Producer": True, "Epoch": True, "First offset": True,
        "Last offset": True, "Records": True, "Age": True, "Coordinator": False, "Hanging": False,
    }  # fmt: skip
    found = transactions.select(transactions.is_open).rows()
    oldest = sorted(found, key=lambda row: -(row["age_ms"] or 0))
    return page_table("Open transactions", columns, oldest, _open_row, noun="open transactions")


def _open_row(row: dict[str, Any]) -> list[str]:
    return [
        printable(f"{row['topic']}-{row['partition']}"),
        str(row["producer_id"]),
        str(row["producer_epoch"]),
        f"{row['first_offset']:,}",
        f"{row['last_offset']:,}",
        f"{row['records']:,}",
        "" if row["age_ms"] is None else age_text(row["age_ms"]),
        _coordinator_cell(row),
        "yes" if row["is_hanging"] else "no",
    ]


def _coordinator_cell(row: dict[str, Any]) -> str:
    """Return the state of a transaction at its coordinator, its age and timeout."""
    if row["coordinator_state"] is None:
        return ""
    timeout = f"timeout {age_text(row['coordinator_timeout_ms'])}"
    age = row["coordinator_age_ms"]
    facts = timeout if age is None else f"{age_text(age)}, {timeout}"
    return f"{row['coordinator_state']} ({facts})"


def _producer_table(columns: dict[str, list[Any]]) -> PageTable:
    titles = {
        "Producer": True, "Epoch": True, "Log": False, "Batches": True, "Records": True,
        "Size": True, "Bytes per batch": True, "Linger, ms": True, "Codecs": False,
        "Sequence gaps": True, "Last written": False,
    }  # fmt: skip
    sizes = columns["size_in_bytes"]
    largest = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    noun = "rows, one for each producer and log"
    return page_table("Producers", titles, largest, partial(_producer_row, columns), noun=noun)


def _producer_row(columns: dict[str, list[Any]], number: int) -> list[str]:
    row = {name: values[number] for name, values in columns.items()}
    mean_size, span = row["mean_batch_size"], row["mean_span_ms"]
    return [
        "none" if row["producer_id"] < 0 else str(row["producer_id"]),
        "" if row["producer_epoch"] < 0 else str(row["producer_epoch"]),
        "" if row["topic"] is None else printable(f"{row['topic']}-{row['partition']}"),
        f"{row['batches']:,}",
        f"{row['records']:,}",
        human_size(row["size_in_bytes"]),
        "" if mean_size is None else f"{mean_size:,.0f}",
        "" if span is None else f"{span:,.1f}",
        row["codecs"],
        f"{row['sequence_gaps']:,}",
        "" if row["last_timestamp"] < 0 else time_text(row["last_timestamp"]),
    ]


def _advice_table(advised: Advice) -> PageTable:
    columns = {
        "Topic": False, "Codec": False, "Ratio": True, "Saving": True,
        "Compression, MB/s": True, "Decompression, MB/s": True, "Sampled batches": True,
    }  # fmt: skip
    trials = [one for group in advised.groups for one in group.trials]
    return page_table("Other codecs", columns, trials, _trial_row, noun="trials")


def _trial_row(one: CodecTrial) -> list[str]:
    return [
        printable(one.topic or ""),
        one.codec if one.level is None else f"{one.codec}, level {one.level}",
        f"{one.ratio:.2f}",
        f"{100 * one.saving:.0f} %",
        "" if one.compress_mb_per_s is None else f"{one.compress_mb_per_s:,.0f}",
        "" if one.decompress_mb_per_s is None else f"{one.decompress_mb_per_s:,.0f}",
        f"{one.batches:,}",
    ]


def time_text(milliseconds: int) -> str:
    """Return a UTC time to the second; a number that is beyond the calendar stays one."""
    try:
        return f"{_EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return str(milliseconds)


def _time_or_empty(milliseconds: int | None) -> str:
    return "" if milliseconds is None or milliseconds < 0 else time_text(milliseconds)


# ---- Kafka's own topics ----------------------------------------------------------------------


def state_tables(logs: LogsLike, facts: Facts) -> list[PageTable]:
    """Return the tables of Kafka's own topics that are among the logs."""
    topics = {log.topic for log in facts.logs}
    tables = []
    if GROUPS_TOPIC in topics:
        tables.append(_read("Consumer groups", "groups", _group_table, logs))
    if TRANSACTIONS_TOPIC in topics:
        tables.append(_read(_UNFINISHED, "transactions", _transaction_table, logs))
    return [one for one in tables if one.rows]


def _read(
    title: str, what: str, read: Callable[[LogDirLike], PageTable], logs: LogsLike
) -> PageTable:
    """Return a table, or one that says why it cannot be read."""
    try:
        if isinstance(logs, PartitionDir):
            return read(LogDir(logs.path, [logs]))
        return read(logs if isinstance(logs, LogDir) else str(getattr(logs, "path", logs)))
    except (KafkaScanError, OSError) as error:
        reason = printable(f"The {what} cannot be read: {error}")
        return page_table(title, {"Reason": False}, [[reason]], list)


def _group_table(logs: LogDirLike) -> PageTable:
    groups = read_groups(logs)
    found = sorted(groups.offsets.rows(), key=lambda row: (row["lag"] is None, -(row["lag"] or 0)))
    title = "Consumer groups" if groups.is_exact else "Consumer groups (incomplete)"
    return page_table(title, _GROUP_COLUMNS, found, _group_row, noun="committed offsets")


def _group_row(row: dict[str, Any]) -> list[str]:
    return [
        printable(row["group"]),
        printable(f"{row['topic']}-{row['partition']}"),
        *("" if row[name] is None else f"{row[name]:,}" for name in _OFFSETS),
        _time_or_empty(row["commit_timestamp"]),
    ]


def _transaction_table(logs: LogDirLike) -> PageTable:
    """Return the transactions that their coordinators have not finished, the oldest first."""
    states = read_transaction_state(logs)
    found = [row for row in states.transactions.rows() if row["status"] in _RUNNING]
    found.sort(key=lambda row: row["start_timestamp"])
    title = _UNFINISHED if states.is_exact else f"{_UNFINISHED} (incomplete)"
    return page_table(title, _TRANSACTION_COLUMNS, found, _transaction, noun="transactions")


def _transaction(row: dict[str, Any]) -> list[str]:
    partitions = [
        f"{one['topic']}-{number}" for one in row["partitions"] for number in one["partitions"]
    ]
    return [
        printable(row["transactional_id"]),
        row["status"],
        str(row["producer_id"]),
        printable(", ".join(partitions)),
        _time_or_empty(row["start_timestamp"]),
    ]
