"""Kinds of findings with severity and advice, and the table that an audit returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from kafkascan.auditing.audit_schemas import FINDING_SCHEMA
from kafkascan.format.errors import CorruptLogError
from kafkascan.format.findings import WORST_FIRST, Severity
from kafkascan.format.texts import few_lines
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import UNREADABLE, AnyTable, Column, Problem, Problems

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR


class FindingKind(NamedTuple):
    """
    A kind of finding.

    Attributes
    ----------
    severity : Severity
    advice : str
        What it causes, and what to do.
    otherwise : str
        For the documentation: another severity, and its condition.
    """

    severity: Severity
    advice: str
    otherwise: str = ""


_REPLICA = "Restore the log from another replica"
_RECOVER = "`kafkascan recover --write --recovery-point 0`"
_REBUILD = (
    "Readers that trust this file get wrong results."
    f" Stop the broker and run {_RECOVER}, which rebuilds it"
)
_CUT = (
    "A broker that recovers this log deletes everything after this position."
    f" {_REPLICA}, or save the intact batches with `kafkascan salvage`."
)

_INDEX = (
    f"{_REBUILD}; or delete the .index file of the segment: without it, a broker rebuilds all"
    " indexes of the segment at startup."
)
_INDEX_MISMATCH = FindingKind(
    ERROR,
    f"{_INDEX} In a copy, the index may be older than its log: if compaction gives a segment an"
    " index of the same size and time, rsync and git do not copy it again (use rsync --checksum).",
)
INDEX_KINDS = dict.fromkeys(
    (
        "BAD_TXN_INDEX_VERSION",
        "ODD_INDEX_SIZE",
        "OFFSET_NOT_IN_LOG",
        "OUT_OF_ORDER",
        "PRODUCER_MISMATCH",
        "TIMESTAMP_MISMATCH",
        "TOO_LARGE",
        "WRONG_POSITION",
    ),
    _INDEX_MISMATCH,
)
"""Kinds of errors of `check_index`, which `FINDING_KINDS` contains."""

TIER_KINDS: dict[str, FindingKind] = {
    "NOT_UPLOADED": FindingKind(
        NOTE,
        "A broker does not read this object. If no upload or deletion is running, one was"
        " interrupted: the object costs storage until you delete it.",
    ),
    "MISSING_OBJECT": FindingKind(
        ERROR,
        "Consumers cannot read the segment, or not by its indexes, unless a broker is deleting it."
        " Restore the object from a version or a backup of the bucket.",
    ),
    "BAD_MANIFEST": FindingKind(
        ERROR,
        "Consumers cannot read the segment, and it was not audited. Restore the manifest from a"
        " version or a backup of the bucket.",
    ),
    "MISSING_KEY": FindingKind(
        ERROR,
        "The segment was not audited. Audit again with the private key (`--private-key ID=PEM`).",
    ),
    "SIZE_MISMATCH": FindingKind(
        ERROR,
        "The object was cut or replaced: consumers fail, or read other bytes. Restore it from a"
        " version or a backup of the bucket.",
    ),
    "OTHER_COPY": FindingKind(
        NOTE,
        "An upload was repeated, or another leader uploaded the same offsets. No action needed:"
        " a broker reads one of them. `kafkascan remote-segments` tells which one it knows.",
    ),
    "UNKNOWN_OBJECT": FindingKind(
        NOTE, "No action needed: brokers do not read it. Check what stored it here."
    ),
    "MANIFEST_MISMATCH": FindingKind(
        ERROR,
        "A broker finds segments by these values: consumers get other offsets, or retention"
        " deletes at the wrong time. Check whether the objects belong together.",
        "warning if only the latest timestamp differs",
    ),
    "TIER_GAP": FindingKind(
        ERROR,
        "Consumers that come to these offsets fail with OFFSET_OUT_OF_RANGE. Look for the segments"
        " in local logs, and in versions or backups of the bucket.",
    ),
    "CATALOGUE_MISMATCH": FindingKind(
        ERROR,
        "Brokers read the object by the values of the cluster: consumers fail, or get other"
        " records. Restore the object from a version or a backup of the bucket.",
    ),
    "ORPHANED_SEGMENT": FindingKind(
        WARNING,
        "No broker reads or deletes these objects: they cost storage. Look again, if the cluster"
        " runs; then delete them.",
    ),
    "LEFTOVER_SEGMENT": FindingKind(
        WARNING, "The cluster has deleted the segment, and its objects cost storage. Delete them."
    ),
    "UNFINISHED_TRANSFER": FindingKind(
        NOTE,
        "No action needed if a broker uploads or deletes it now. Otherwise a broker has failed to,"
        " and tries again: see its log.",
    ),
    "DELETED_TOPIC": FindingKind(
        WARNING, "No broker reads these objects, and they cost storage. Delete them."
    ),
    "RETENTION_EXCEEDED": FindingKind(
        WARNING,
        "Brokers have not deleted the segments: see the log of the partition's leader for errors of"
        " its remote log manager. Until then they cost storage, and consumers read them.",
    ),
    "UNREFERENCED_SEGMENT": FindingKind(
        NOTE,
        "Another leader has replaced these offsets, and consumers do not read them. No action"
        " needed: a broker deletes the segment when its epochs are older than the log.",
    ),
}
"""Kinds of findings about remote storage, which `FINDING_KINDS` contains."""

FINDING_KINDS: dict[str, FindingKind] = {
    # ---- bytes ----
    "CHECKSUM_MISMATCH": FindingKind(ERROR, _CUT),
    "CORRUPT": FindingKind(ERROR, _CUT),
    "UNREADABLE": FindingKind(
        ERROR, "The file was not audited. Check its permissions and the disk, then audit again."
    ),
    "TORN_TAIL": FindingKind(
        WARNING,
        "The last batch is incomplete. A broker removes it when it recovers the log;"
        " if this is a backup, copy the file again. If intact batches follow, a length is damaged,"
        " and a broker deletes them, too: save them with `kafkascan salvage`.",
        "error if intact batches follow; note if the file grows during the audit",
    ),
    "CUT_SEGMENT": FindingKind(
        ERROR,
        "A broker that recovers this log deletes all segments that follow."
        f" {_REPLICA}, or save the intact batches with `kafkascan salvage`.",
    ),
    "ZERO_TAIL": FindingKind(
        NOTE,
        "The file is preallocated. No action needed: a broker trims it when it shuts down, and"
        " after a crash when it starts: it recovers the log, and truncates these zeros.",
    ),
    "NO_BATCHES": FindingKind(
        WARNING,
        "A broker that recovers this log empties the file. If anything was written to it, restore"
        " it from another replica: zeros alone are healthy only in a preallocated segment that is"
        " in use, with preallocated indexes.",
    ),
    "BAD_COUNT": FindingKind(ERROR, f"Consumers fail at this batch. {_REPLICA}."),
    "UNKNOWN_CODEC": FindingKind(
        ERROR, "No consumer can read this batch. Find the producer that wrote it."
    ),
    "BAD_RECORDS": FindingKind(
        ERROR, "Consumers fail at this batch. Skip it: seek to the offset after it."
    ),
    "RECORD_OFFSETS": FindingKind(
        ERROR,
        "Consumers skip records of this batch or of those that follow: they go on behind the"
        f" highest offset so far. {_REPLICA}.",
    ),
    "OVERSIZED_BATCH": FindingKind(
        NOTE,
        "Consumers and followers read it, whatever their fetch sizes are, but a topic with this"
        " limit does not accept it again, as from a mirror. Raise max.message.bytes there.",
        "warning above `--max-message-bytes`",
    ),
    "OLD_FORMAT": FindingKind(
        NOTE,
        "No action needed: Kafka reads this format, but since 4.0 does not write or convert it."
        " Its records have no headers, its batches no leader epochs and no producers. Rewrite the"
        " log with `kafkascan convert` if a client does not read it.",
    ),
    # ---- offsets and epochs ----
    "ENDS_EARLY": FindingKind(ERROR, f"The end of the log is lost. {_REPLICA}."),
    "OFFSET_GAP": FindingKind(
        WARNING,
        "Records may have been lost, unless the topic is compacted: compaction leaves such gaps."
        " Compare this log with another replica.",
        "note if the log was compacted",
    ),
    "OFFSET_OVERLAP": FindingKind(
        ERROR,
        "At the start of a segment: one of the segments is a stale copy. A broker loads both, and"
        " which one a consumer reads depends on the offset at which it starts; move the stale one"
        " away. Inside a segment: a broker that recovers it may empty it, or fail."
        f" {_REPLICA}.",
    ),
    "OFFSET_OUT_OF_SEGMENT": FindingKind(
        ERROR,
        "Brokers do not find these records. The file has the wrong name or belongs to another log:"
        " rename it, or move it away.",
    ),
    "EPOCH_BACKWARDS": FindingKind(
        ERROR,
        "No checksum covers leader epochs: a single batch is damaged. If there are many batches,"
        f" this log has diverged from the leader's log. {_REPLICA}.",
    ),
    "EPOCH_MISMATCH": FindingKind(
        ERROR,
        "Followers may truncate at wrong offsets. Stop the broker, delete leader-epoch-checkpoint"
        f" and run {_RECOVER}, which rebuilds it.",
    ),
    "EPOCHS_BEHIND": FindingKind(
        WARNING,
        f"Followers may truncate at wrong offsets. Stop the broker and run {_RECOVER}, which"
        " completes the file; or copy it from another replica.",
    ),
    "BAD_CHECKPOINT": FindingKind(
        ERROR,
        "A broker does not start with this file. Delete leader-epoch-checkpoint and run"
        f" {_RECOVER}, which rebuilds it. Copy partition.metadata from another replica: a broker"
        " takes a log without it for stray.",
    ),
    # ---- times ----
    "FUTURE_TIMESTAMP": FindingKind(
        WARNING,
        "Time-based retention keeps these segments. Set retention.bytes, or delete the records up"
        " to this offset, and correct the producer's clock.",
    ),
    "PAST_TIMESTAMP": FindingKind(
        WARNING,
        "Time-based retention deletes this segment early."
        " Correct the producer's clock or time unit.",
    ),
    "MAX_TIMESTAMP_MISMATCH": FindingKind(
        ERROR,
        "Lookups by timestamp miss records, and time-based retention deletes at the wrong time."
        f" {_REPLICA}.",
    ),
    # ---- side files ----
    "MISSING_INDEX": FindingKind(
        NOTE,
        "No action needed if .index is missing: a broker rebuilds all indexes of the segment at"
        " startup. If only .timeindex is missing, a broker starts an empty one, and retention and"
        " lookups by time use the time of the file: delete .index, too.",
    ),
    "ORPHAN": FindingKind(
        WARNING, "The file belongs to no segment. No action needed: a broker deletes it at startup."
    ),
    "LEFTOVER": FindingKind(
        NOTE,
        "At startup, a broker deletes .deleted and .cleaned files, and puts .swap files in place"
        " unless a .cleaned file remains from before. It ignores .part, .tmp and .bak files: a"
        " killed command replaces its .part file when it runs again, a broker its .tmp file when"
        " it writes the checkpoint again, and backups stay until you delete them.",
    ),
    "CHANGED_WHILE_READ": FindingKind(
        NOTE,
        "Findings of the log are missing, or may not be of one time. Audit it again, where it is"
        " now, if it is anywhere.",
    ),
    "FOREIGN_NAME": FindingKind(
        ERROR,
        "A broker does not start with this name. Move it out of the data directory, or rename it."
        " For lost+found: use a folder below the mount point as the data directory.",
    ),
    "INTERRUPTED_REWRITE": FindingKind(
        WARNING,
        "Run the same command again, which completes the rewrite: until then, records that were to"
        " be erased may still be there. A broker does not notice it.",
    ),
    "DROPPED_LOG": FindingKind(NOTE, "No action needed: a broker deletes this log at startup."),
    "FUTURE_LOG": FindingKind(
        NOTE,
        "A replica is being moved between data directories. If kafka-log-dirs.sh shows no progress,"
        " start the move again, or move the replica back.",
    ),
    "STRAY_LOG": FindingKind(
        WARNING,
        "Brokers neither serve nor delete this log, which was not theirs when they started."
        " Check that another replica has the records, and delete the folder.",
    ),
    "DUPLICATE_LOG": FindingKind(
        ERROR,
        "The broker does not start, or takes one of the logs for stray. Compare them with"
        " `kafkascan diff`, and move the one that ends earlier away.",
    ),
    "UNASSIGNED_LOG": FindingKind(
        WARNING,
        "A broker renames the folder to a stray one when it starts, and does not serve it."
        " Check that another replica has the records, and delete the folder.",
    ),
    "MISSING_LOG": FindingKind(
        ERROR,
        "A broker creates an empty log when it starts. If no other replica is in sync, the records"
        " are lost: restore the folder from a backup before the start.",
    ),
    "COMMITTED_BEYOND_END": FindingKind(
        WARNING,
        "Records that the group has read are missing: the end of the log is lost, or the replica is"
        " behind. Compare this log with another replica; the group's next fetch resets its offset.",
    ),
    **INDEX_KINDS,
    "UNKNOWN_INDEX_LAYOUT": FindingKind(
        WARNING,
        "A later version of Kafka wrote the index, and its entries were not checked. Update"
        " kafkascan; brokers of versions that do not know the layout do not find records by it.",
    ),
    "UNKNOWN_TOPIC": FindingKind(
        NOTE,
        "A later version of Kafka keeps its own state in this topic. Batches were checked, what"
        " the records mean was not. Update kafkascan.",
    ),
    "TXN_INDEX_MISMATCH": FindingKind(ERROR, _INDEX),
    "BAD_SNAPSHOT": FindingKind(ERROR, f"{_REBUILD}."),
    "SNAPSHOT_MISMATCH": FindingKind(ERROR, f"{_REBUILD}."),
    "PADDED": FindingKind(
        NOTE,
        "The file is preallocated. No action needed: a broker trims it when it shuts down, and"
        " after a crash when it starts and recovers the log.",
    ),
    "STALE": FindingKind(
        NOTE,
        "The log was truncated while a broker had the index open."
        " No action needed: the broker does not use these entries, and replaces them.",
    ),
    "INCOMPLETE": FindingKind(
        NOTE,
        "The index does not cover the end of its segment."
        " No action needed: brokers write indexes after the log.",
    ),
    # ---- producers and transactions ----
    "SEQUENCE_GAP": FindingKind(
        WARNING, "Records of this producer are missing. Compare this log with another replica."
    ),
    "DUPLICATE_SEQUENCE": FindingKind(
        WARNING, "Records may be stored twice. Check that consumers tolerate duplicates."
    ),
    "FENCED_PRODUCER": FindingKind(WARNING, "A fenced producer wrote batches. Review its records."),
    "BAD_MARKER": FindingKind(ERROR, f"A broker refuses to load this log. {_REPLICA}."),
    "HANGING_TRANSACTION": FindingKind(
        WARNING,
        "read_committed consumers and compaction stop at the transaction's first offset. If no"
        " coordinator knows the transaction, abort it with `kafka-transactions.sh abort`.",
    ),
    "FORGOTTEN_TRANSACTION": FindingKind(
        WARNING,
        "No marker will end the transaction: read_committed consumers and compaction stop at its"
        " first offset. Abort it with `kafka-transactions.sh abort`.",
        "note if it has not been idle for `--timeout-ms`",
    ),
    "OPEN_TRANSACTION": FindingKind(
        NOTE,
        "A copy does not show how the transaction ended. No action needed if its log is in use, or"
        " while its coordinator has it as Ongoing; otherwise audit it with the time of the copy as"
        " now (`--now`).",
    ),
    "EMPTY_TRANSACTIONS": FindingKind(
        NOTE,
        "No action needed: the transactions wrote no records here, or compaction removed them.",
    ),
    "MANY_PRODUCERS": FindingKind(
        WARNING,
        "Each producer uses memory of the broker. Reuse producers in the clients, or lower"
        " producer.id.expiration.ms.",
    ),
    "COMPACTION": FindingKind(NOTE, "No action needed."),
    **TIER_KINDS,
}
COMPACTED_GAP = FindingKind(NOTE, "No action needed: compaction leaves such gaps.")
"""An OFFSET_GAP in a log that was compacted."""


def finding_kind(symbol: str) -> FindingKind:
    """Return the kind of a symbol; symbols that are not listed are errors of an index."""
    return FINDING_KINDS.get(symbol, _INDEX_MISMATCH)


@dataclass(frozen=True)
class LogFinding:
    """
    Findings of one kind in one file; an element of `Audit.findings`.

    Attributes
    ----------
    symbol : str
        Greppable name of the kind.
    severity : Severity
    topic : str or None
    partition : int or None
    path : str
        Path of the file, or of the log's folder.
    file : str or None
        Name of the file; None for a whole log.
    position : int or None
        Byte position of the first occurrence in the file.
    offset : int or None
        Offset of the first occurrence.
    count : int
        Number of occurrences in the file.
    message : str
        What is wrong, at the first occurrence.
    advice : str
        What it causes, and what to do.
    command : str or None
        A command of Kafka that does so.
    """

    symbol: str
    severity: Severity
    topic: str | None
    partition: int | None
    path: str
    file: str | None
    position: int | None
    offset: int | None
    count: int
    message: str
    advice: str
    command: str | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" position {self.position}:"
        more = "" if self.count == 1 else f" ({self.count:,} times)"
        return f"{self.path}:{place} {self.severity}: {self.message}{more} [{self.symbol}]"


_DAMAGE = ("CHECKSUM_MISMATCH", "CORRUPT", "TORN_TAIL", "CUT_SEGMENT")


@dataclass(frozen=True, repr=False)
class Audit(AnyTable):
    """
    Findings of an audit; returned by `audit`.

    Attributes
    ----------
    path : pathlib.Path
    findings : list of LogFinding
        In the order of the logs.
    logs, segments, batches, size_in_bytes : int
        What was audited.
    unchecked : list of str
        Of a data dir: sentences about checks that it lacks topics of Kafka for, and about the other
        data dirs of its broker.
    """

    schema: ClassVar[Schema] = FINDING_SCHEMA

    path: Path
    findings: list[LogFinding] = field(default_factory=list)
    logs: int = 0
    segments: int = 0
    batches: int = 0
    size_in_bytes: int = 0
    unchecked: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def alarms(self) -> list[LogFinding]:
        """Findings that are warnings or errors."""
        return [one for one in self.findings if one.severity is not NOTE]

    @property
    def damage(self) -> list[LogFinding]:
        """Findings about damaged segments, whose intact batches `salvage` copies."""
        return [one for one in self.alarms if one.severity is ERROR and one.symbol in _DAMAGE]

    def only_alarms(self) -> Audit:
        """Return the audit without notes."""
        return replace(self, findings=self.alarms)

    def first_of_each_kind(self, count: int) -> tuple[Audit, Counter[str]]:
        """Return the audit with the first findings of each symbol, and the numbers of others."""
        numbers: Counter[str] = Counter()
        first = []
        for one in self.findings:
            numbers[one.symbol] += 1
            if numbers[one.symbol] <= count:
                first.append(one)
        others = Counter({symbol: of - count for symbol, of in numbers.items() if of > count})
        return replace(self, findings=first), others

    @property
    def is_healthy(self) -> bool:
        """Whether there are no warnings and errors."""
        return not self.alarms

    @property
    def problems(self) -> Problems:
        """The findings about files that were not audited, and the checks that were not made."""
        unread = [
            Problem(one.symbol, one.message, one.path, one.severity, topic=one.topic,
                    partition=one.partition, offset=one.offset)
            for one in self.findings
            if one.symbol == UNREADABLE
        ]  # fmt: skip
        unchecked = [
            Problem("UNCHECKED", message, str(self.path), NOTE, rows_missing=False)
            for message in self.unchecked
        ]
        return Problems([*unread, *unchecked])

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        return {
            name: [getattr(one, name) for one in self.findings] for name in FINDING_SCHEMA.names
        }

    def _summary_lines(self) -> list[str]:
        seen = (
            f"{self.logs:,} logs, {self.segments:,} segments, {self.batches:,} batches,"
            f" {self.size_in_bytes:,} bytes"
        )
        worst_first = sorted(self.findings, key=lambda one: WORST_FIRST.index(one.severity))
        title = f"<Audit {self.path}: {seen}>"
        return few_lines(title, (f"  {one}" for one in worst_first)).split("\n")


def fold_padded(findings: list[LogFinding], path: Path) -> list[LogFinding]:
    """Replace findings about preallocated indexes of several logs by one: all in use have them."""
    padded = [one for one in findings if one.symbol == "PADDED"]
    logs = {(one.topic, one.partition) for one in padded}
    if len(logs) < 2:
        return findings
    message = f"{len(padded):,} index files of {len(logs):,} logs are preallocated"
    folded = FoundInLog(folder=path).add("PADDED", None, message, count=len(padded))
    return [one for one in findings if one.symbol != "PADDED"] + [folded]


@dataclass
class FoundInLog:
    """
    Findings of one log, one for each file and kind.

    Attributes
    ----------
    topic : str or None
    partition : int or None
    folder : pathlib.Path
        Of the log.
    tallies : dict of (str or None, str) to LogFinding
        By the name of the file, or None for the whole log, and the symbol.
    """

    topic: str | None = None
    partition: int | None = None
    folder: Path = Path()
    tallies: dict[tuple[str | None, str], LogFinding] = field(default_factory=dict)

    @classmethod
    def of(cls, log: PartitionDir) -> FoundInLog:
        """Return a tally of the findings of a log."""
        return cls(log.topic, log.partition, log.path)

    def add(
        self,
        symbol: str,
        file: str | None,
        message: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        count: int = 1,
        severity: Severity | None = None,
        command: str | None = None,
    ) -> LogFinding:
        """
        Add findings, and return that of their kind and file.

        The first of a kind in a file determines position, message and severity.
        """
        known = self.tallies.get((file, symbol))
        if known is not None:
            return self.change(known, count=known.count + count)
        kind = finding_kind(symbol)
        path = str(self.folder if file is None else self.folder / file)
        first = LogFinding(
            symbol, severity or kind.severity, self.topic, self.partition, path, file,
            position, offset, count, message, kind.advice, command,
        )  # fmt: skip
        return self.change(first)

    def change(self, one: LogFinding, **changes: Any) -> LogFinding:
        """Replace values of a finding."""
        self.tallies[one.file, one.symbol] = changed = replace(one, **changes)
        return changed

    def of_kind(self, symbol: str) -> list[LogFinding]:
        """Return the findings of a kind."""
        return [one for one in self.tallies.values() if one.symbol == symbol]

    @contextmanager
    def reading(self, file: str, symbol: str) -> Iterator[None]:
        """Add a finding, of this kind or UNREADABLE, if reading a side file raises an error."""
        try:
            yield
        except OSError as error:
            self.add("UNREADABLE", file, str(error))
        except CorruptLogError as error:
            self.add(symbol, file, error.reason, position=error.position)

    def findings(self) -> list[LogFinding]:
        """Return the findings by file and position; those of the whole log come first."""
        return sorted(
            self.tallies.values(),
            key=lambda one: (one.file or "", one.position is not None, one.position or 0),
        )
