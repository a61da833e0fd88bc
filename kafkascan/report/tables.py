"""The tables of the page about logs: topics, logs, producers, transactions, other codecs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkascan.analysis.codec_advice import Advice
from kafkascan.analysis.transactions import Transactions
from kafkascan.batches.columns import as_datetime64
from kafkascan.format.texts import printable
from kafkascan.report.facts import Facts, LogFacts
from kafkascan.report.plots import human_size

MAX_ROWS = 200
# A longer table is folded.
_MAX_UNFOLDED = 12

Rows = list[list[str]]


@dataclass(frozen=True)
class PageColumn:
    """A column of a table."""

    title: str
    is_number: bool = True


@dataclass(frozen=True)
class PageTable:
    """
    A table of the page.

    Attributes
    ----------
    title : str
    columns : list of PageColumn
    rows : list of list of str
    count : int
        Number of rows that there are; `rows` has at most `MAX_ROWS` of them.
    summary : str
        What is seen of a folded table; empty: it is not folded.
    parts : list of PageTable
        Folded tables below this one.
    """

    title: str
    columns: list[PageColumn]
    rows: Rows
    count: int
    summary: str = ""
    parts: list[PageTable] = field(default_factory=list)

    @property
    def more(self) -> int:
        """Number of rows that are left out."""
        return self.count - len(self.rows)


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


def page_table(title: str, columns: dict[str, bool], rows: Rows, *, noun: str = "") -> PageTable:
    """Return a table; `columns` maps titles to whether the column contains numbers."""
    summary = f"{len(rows):,} {noun}" if noun and len(rows) > _MAX_UNFOLDED else ""
    named = [PageColumn(name, is_number) for name, is_number in columns.items()]
    return PageTable(title, named, rows[:MAX_ROWS], len(rows), summary)


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
    table = page_table("Topics", columns, [_topic_row(*one) for one in topics])
    table.parts.extend(_log_table(*one) for one in topics[:MAX_ROWS])
    return table


def _topic_row(topic: str, logs: list[LogFacts]) -> list[str]:
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
    rows = [_log_row(log) for log in sorted(logs, key=lambda log: -log.size)]
    table = page_table("", columns, rows)
    noun = "partition" if len(logs) == 1 else "partitions"
    size = human_size(sum(log.size for log in logs))
    return PageTable(
        "",
        table.columns,
        table.rows,
        table.count,
        f"{printable(topic)}: {len(logs):,} {noun}, {size}",
    )


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
        "Last offset": True, "Records": True, "Age": True, "Hanging": False,
    }  # fmt: skip
    names = (
        "topic", "partition", "producer_id", "producer_epoch", "first_offset", "last_offset",
        "records", "age_ms", "is_hanging",
    )  # fmt: skip
    found = transactions.select(transactions.is_open).to_columns()
    oldest_first = sorted(
        zip(*(found[name] for name in names), strict=True), key=lambda row: -(row[7] or 0)
    )
    rows = [
        [
            printable(f"{topic}-{partition}"), str(producer), str(epoch), f"{first:,}",
            f"{last:,}", f"{records:,}", "" if age is None else f"{age / 60_000:,.0f} min",
            "yes" if hangs else "no",
        ]
        for topic, partition, producer, epoch, first, last, records, age, hangs in oldest_first
    ]  # fmt: skip
    return page_table("Open transactions", columns, rows, noun="open transactions")


def _producer_table(columns: dict[str, list[Any]]) -> PageTable:
    titles = {
        "Producer": True, "Epoch": True, "Log": False, "Batches": True, "Records": True,
        "Size": True, "Bytes per batch": True, "Linger, ms": True, "Codecs": False,
        "Sequence gaps": True, "Last written": False,
    }  # fmt: skip
    names = (
        "producer_id", "producer_epoch", "topic", "partition", "batches", "records",
        "size_in_bytes", "mean_batch_size", "mean_span_ms", "codecs", "sequence_gaps",
        "last_timestamp",
    )  # fmt: skip
    largest_first = sorted(
        zip(*(columns[name] for name in names), strict=True), key=lambda row: -row[6]
    )
    rows = [_producer_row(*row) for row in largest_first]
    return page_table("Producers", titles, rows, noun="rows, one for each producer and log")


def _producer_row(
    producer: int,
    epoch: int,
    topic: str | None,
    partition: int | None,
    batches: int,
    records: int,
    size: int,
    mean_size: float | None,
    span: float | None,
    codecs: str,
    gaps: int,
    last: int,
) -> list[str]:
    return [
        "none" if producer < 0 else str(producer),
        "" if epoch < 0 else str(epoch),
        "" if topic is None else printable(f"{topic}-{partition}"),
        f"{batches:,}",
        f"{records:,}",
        human_size(size),
        "" if mean_size is None else f"{mean_size:,.0f}",
        "" if span is None else f"{span:,.1f}",
        codecs,
        f"{gaps:,}",
        "" if last < 0 else time_text(last),
    ]


def _advice_table(advised: Advice) -> PageTable:
    columns = {
        "Topic": False, "Codec": False, "Ratio": True, "Saving": True,
        "Compression, MB/s": True, "Decompression, MB/s": True, "Sampled batches": True,
    }  # fmt: skip
    rows = [
        [
            printable(one.topic or ""),
            one.codec if one.level is None else f"{one.codec}, level {one.level}",
            f"{one.ratio:.2f}",
            f"{100 * one.saving:.0f} %",
            "" if one.compress_mb_per_s is None else f"{one.compress_mb_per_s:,.0f}",
            "" if one.decompress_mb_per_s is None else f"{one.decompress_mb_per_s:,.0f}",
            f"{one.batches:,}",
        ]
        for group in advised.groups
        for one in group.trials
    ]
    return page_table("Other codecs", columns, rows, noun="trials")


def time_text(milliseconds: int) -> str:
    """Return a UTC time to the second; a number that is beyond the calendar stays one."""
    try:
        (time,) = as_datetime64(np.array([milliseconds], np.int64)).tolist()
        return f"{time:%Y-%m-%d %H:%M:%S}"
    except (ValueError, TypeError, OverflowError):
        return str(milliseconds)
