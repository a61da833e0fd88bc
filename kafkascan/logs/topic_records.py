"""Records of one of Kafka's own topics, up to an offset or a time, and what may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kafkascan.broker_state.checkpoints import CLEANER_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CorruptBatchError, KafkaScanError, NoLogsError, detached
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.format.times import TimeLike, moment_of
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.log_problems import OFFSET_GAP, IncompleteLogError
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.opened_logs import LogView, live_logs
from kafkascan.logs.reading import iter_records
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import Problem, Problems, problem_of

AsOf: TypeAlias = int | Mapping[int, int] | TimeLike
"""A point in the log of a topic: an offset of all partitions, a mapping of partitions to offsets,
or a `TimeLike` that is not an integer."""

COMPACTED = "COMPACTED"
"""Symbol of a problem: compaction may have removed records that an earlier state depends on."""

DELETED_RECORDS = "DELETED_RECORDS"
"""Symbol of a problem: the log starts after records that the state depends on."""

_COLUMNS = (
    "offset", "timestamp", "key", "value", "producer_id", "is_transactional", "is_control",
)  # fmt: skip


@dataclass(frozen=True)
class ReplayLimit:
    """
    The first record that is not applied: by its offset, or by its timestamp.

    Attributes
    ----------
    offset : int or None
        Records from this offset on are not applied.
    time_ms : int or None
        The first record with a later timestamp is not applied, nor are the records after it, as
        ``ListOffsets`` finds the offset of a time.
    """

    offset: int | None = None
    time_ms: int | None = None

    @classmethod
    def of(cls, as_of: AsOf | None, partition: int | None) -> ReplayLimit:
        """Return the limit of a partition; None is the end of the log."""
        if as_of is None:
            return cls()
        if isinstance(as_of, Mapping):
            return cls(as_of.get(partition if partition is not None else -1))
        if isinstance(as_of, (int, np.integer)) and not isinstance(as_of, bool):
            return cls(int(as_of))
        return cls(time_ms=moment_of(as_of, "as_of", rounds_up=False))

    @property
    def is_end(self) -> bool:
        """Whether all records are applied."""
        return self.offset is None and self.time_ms is None

    def count_before(self, records: RecordTable) -> int:
        """Return the number of records of a table that are before the limit."""
        after = np.zeros(len(records), np.bool_)
        if self.offset is not None:
            after |= records["offset"] >= self.offset
        if self.time_ms is not None:
            after |= records["timestamp"] > self.time_ms
        return int(after.argmax()) if after.any() else len(records)


def damage(log: LogView, errors: Iterable[Exception]) -> list[Problem]:
    """Return the problems that the errors of reading a log are."""
    one = log.partition
    return [
        problem_of(error, str(one.path), topic=one.topic, partition=one.partition)
        for error in errors
    ]


def topic_problem(
    log: LogView,
    symbol: str,
    message: str,
    severity: Severity = Severity.WARNING,
    *,
    rows_missing: bool = True,
) -> Problem:
    """Return a problem of a partition of one of Kafka's own topics; see `Problem`."""
    one = log.partition
    return Problem(
        symbol,
        message,
        str(one.path),
        severity,
        topic=one.topic,
        partition=one.partition,
        rows_missing=rows_missing,
    )


def inexact_state(log: LogView, symbol: str, end_offset: int, reason: str) -> Problem:
    """Return the problem of a state that depends on records which the log no longer has."""
    text = f"the state before offset {end_offset} is not exact, because {reason}"
    return topic_problem(log, symbol, text)


def open_topic(path: LogDirLike, topic: str) -> tuple[LogDir, list[LogView]]:
    """
    Return a data dir, and the logs of one topic in it.

    Raises
    ------
    NoLogsError
        If there are none.
    As `open_log_dir`.
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path)
    partitions = [one for one in log_dir.partitions if one.topic == topic]
    logs = live_logs(LogDir(log_dir.path, partitions))
    if not logs:
        raise NoLogsError(str(log_dir.path), f"no partitions of {topic} here")
    return log_dir, logs


class PartitionRecords:
    """
    Yields the records of a log before a limit, in offset order, and then those after it.

    Parameters
    ----------
    log : LogView
    limit : ReplayLimit

    Attributes
    ----------
    errors : list of Exception
        Damaged batches, which are skipped, and the error that ended the log.
    end_offset : int
        After the last record that was yielded by `before_limit`, or at the limit.
    is_gapless : bool
        Whether no offset before `end_offset` lacks a record.
    """

    def __init__(self, log: LogView, limit: ReplayLimit) -> None:
        self.errors: list[Exception] = []
        self.end_offset = log.start_offset
        self.is_gapless = log.start_offset == 0
        self._log = log
        self._limit = limit
        self._after: RecordTable | None = None
        self._tables = self._read()

    def before_limit(self) -> Iterator[RecordTable]:
        """Yield the records before the limit."""
        for table in self._tables:
            count = self._limit.count_before(table)
            applied = table[:count]
            if count:
                yield applied
                self._advance(applied)
            if count < len(table):
                self._after = table[count:]
                self._reach(int(table["offset"][count]))
                return

    def after_limit(self) -> Iterator[RecordTable]:
        """Yield the records at or after the limit."""
        if self._after is not None:
            yield self._after
            yield from self._tables

    def _reach(self, next_offset: int) -> None:
        """Move the end to the limit; there may have been records between it and the last one."""
        end = next_offset if self._limit.offset is None else self._limit.offset
        self.is_gapless &= end == self.end_offset
        self.end_offset = end

    def _advance(self, table: RecordTable) -> None:
        offsets = table["offset"]
        count = int(offsets[-1]) + 1 - self.end_offset
        self.is_gapless &= count == len(offsets)
        self.end_offset = int(offsets[-1]) + 1

    def _add_problems(self, problems: Problems) -> None:
        """Add what is missing or a guess; damaged batches are known, gaps make it not gapless."""
        known = {getattr(error, "position", None) for error in self.errors}
        for one in problems:
            is_news = one.rows_missing or one.severity is Severity.ERROR
            is_news |= one.symbol == str(ScanEnd.TORN_TAIL)
            if is_news and one.symbol != OFFSET_GAP and one.position not in known:
                position = one.position or 0
                self.errors.append(
                    IncompleteLogError(one.path, position, None, one.message, one.symbol)
                )

    def _read(self) -> Iterator[RecordTable]:
        def add(error: CorruptBatchError) -> None:
            self.errors.append(detached(error))

        try:
            tables = iter_records(
                self._log.partition,
                columns=_COLUMNS,
                control="include",
                log_start_offset=self._log.start_offset,
                verify=True,
                on_damage=add,
                on_corrupt="stop",
            )
            for table in tables:
                if len(table):
                    yield table
                self._add_problems(table.problems)
        except (KafkaScanError, OSError) as error:
            self.errors.append(detached(error))


def require_reached(as_of: AsOf | None, end_offsets: Sequence[int]) -> None:
    """
    Refuse an offset after the end of all logs.

    Raises
    ------
    ValueError
    """
    if isinstance(as_of, int) and as_of > max(end_offsets, default=0):
        raise ValueError(
            f"as_of {as_of} is after the last offset, {max(end_offsets, default=0)}; a time is a"
            " datetime, or a text in ISO 8601"
        )


def cleaned_offset(log: LogView, checkpoints: CheckpointReader) -> int:
    """Return the offset before which the cleaner may have removed records."""
    known = checkpoints.offset_of(log.partition, CLEANER_CHECKPOINT)
    # Without the checkpoint: the cleaner never cleans the last segment.
    return known or (log.segments[-1].base_offset or 0)
