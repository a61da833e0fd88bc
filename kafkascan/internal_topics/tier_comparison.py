"""Compare the segments that the cluster knows with the objects in remote storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import REMOTE_TOPIC
from kafkascan.internal_topics.coordinator_records import TOPIC_ID
from kafkascan.internal_topics.metadata.metadata_reading import read_metadata
from kafkascan.internal_topics.remote_segments import (
    END_OFFSET,
    MAX_TIMESTAMP,
    SEGMENT_ID,
    START_OFFSET,
    STATE,
    RemoteSegments,
    is_unread,
    read_remote_segments,
    row_of_upload,
    tier_problem,
)
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.topic_records import AsOf
from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown
from kafkascan.tables.table import Problem, Problems, Table
from kafkascan.tables.table_set import TableSet
from kafkascan.tiered.tier_listing import TieredLogs, parts_of_key
from kafkascan.tiered.tier_segments import TierSegment

COMPARED_SCHEMA: Final = Schema(
    "tier_comparison",
    (
        TOPIC,
        PARTITION,
        START_OFFSET,
        END_OFFSET,
        Field("verdict", "string", "one of `VERDICTS`", nullable=False),
        Field("detail", "string", "what differs"),
        STATE,
        Field("size", "int64", "size of the log file on a broker's disk; none if it is not known",
              "bytes"),
        Field("stored_size", "int64", "size of its objects; none if it is not known", "bytes",
              shown=Shown.WIDE),
        replace(MAX_TIMESTAMP, shown=Shown.WIDE),
        SEGMENT_ID,
        TOPIC_ID,
    ),
)  # fmt: skip
"""The columns of `TierComparison.segments`."""

VERDICTS: Final = {
    "SAME": "the cluster knows it, and its objects are there",
    "UPLOADING": "its upload is running, or was interrupted",
    "DELETING": "its deletion is running, or was interrupted",
    "MISSING_OBJECT": "consumers may read it, but it is not in remote storage",
    "DIFFERENT": "the cluster and remote storage disagree about it",
    "DELETED": "the cluster has deleted it, but its objects are there",
    "ORPHAN": "the cluster does not know it",
    "UNDECIDED": "the cluster does not know it by the records that were read, which are not all",
}
"""What each verdict means. All but the first three are findings."""

_HARMLESS = frozenset({"SAME", "UPLOADING", "DELETING"})
_FACTS = (
    "topic_id", "partition", "start_offset", "end_offset", "size", "max_timestamp", "leader_epochs",
)  # fmt: skip
_TEMPORARY = {"COPY_SEGMENT_STARTED": "UPLOADING", "DELETE_SEGMENT_STARTED": "DELETING"}

_Key: TypeAlias = "str | tuple[str, int, int]"
_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class TierComparison(TableSet):
    """
    Segments in ``__remote_log_metadata`` and in remote storage; of `compare_remote_segments`.

    Attributes
    ----------
    segments : Table
        `COMPARED_SCHEMA` has the columns.
    problems : Problems
        Those of `RemoteSegments`, and objects that are not of a segment.
    """

    segments: Table
    problems: Problems

    schemas: ClassVar[dict[str, Schema]] = {"segments": COMPARED_SCHEMA}

    @property
    def findings(self) -> Table:
        """The segments whose verdict is a finding."""
        rows = (row for row in self.segments.rows() if row["verdict"] not in _HARMLESS)
        return Table.of_rows(COMPARED_SCHEMA, rows, self.segments.problems)

    def sentences(self) -> list[str]:
        """Return a sentence for each finding."""
        return [_sentence(row) for row in self.findings.rows()]

    def _counts(self) -> list[str]:
        return [*super()._counts(), f"{len(self.findings):,} findings"]


def _sentence(row: _Row) -> str:
    what = VERDICTS[row["verdict"]] + ("" if row["detail"] is None else f": {row['detail']}")
    place = f"{row['topic']}-{row['partition']}: offset {row['start_offset']}"
    return f"{place}: segment {row['segment_id']}: {what} [{row['verdict']}]"


def compare_remote_segments(
    path: LogDirLike, tier: TieredLogs, /, *, as_of: AsOf | None = None
) -> TierComparison:
    """
    Compare the segments that the cluster knows with the objects in remote storage.

    Parameters
    ----------
    path, as_of
        Of ``__remote_log_metadata``; see `read_remote_segments`.
    tier : TieredLogs
        Result of `open_tiered`. Names and manifests are compared, not the bytes of segments.

    Returns
    -------
    TierComparison

    Raises
    ------
    As `read_remote_segments`.

    Notes
    -----
    A running cluster goes on between the reading of its records and the listing: look again before
    you delete an orphan. All records about a partition are in one partition of
    ``__remote_log_metadata`` (KIP-405). If a data dir does not have that partition, a segment
    without a record is ``UNDECIDED``: read the data dirs of more brokers.
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path)
    known = read_remote_segments(log_dir, as_of=as_of)
    comparison = _Comparison(known, tier, _count_of_partitions(log_dir))
    rows = sorted(comparison.rows(), key=_place)
    problems = known.problems + comparison.problems
    return TierComparison(Table.of_rows(COMPARED_SCHEMA, rows, problems), problems)


def _count_of_partitions(log_dir: LogDir) -> int | None:
    """Return the number of partitions of the topic, if the data dir has the cluster's metadata."""
    try:
        topics = read_metadata(log_dir)["topics"].where(topic=REMOTE_TOPIC)
    except (KafkaScanError, OSError):
        return None
    return int(topics["partitions"][0]) if len(topics) else None


def _place(row: _Row) -> tuple[str, int, int, str]:
    return row["topic"], row["partition"], row["start_offset"], row["segment_id"] or ""


@dataclass
class _Comparison:
    known: RemoteSegments
    tier: TieredLogs
    metadata_partitions: int | None
    problems: list[Problem] = field(default_factory=list)

    def rows(self) -> Iterator[_Row]:
        """Yield a row for each segment."""
        stored = {self._key_of_row(row_of_upload(one)): one for one in self._uploads()}
        incomplete = self._incomplete()
        for row in self.known.segments.rows():
            key = self._key_of_row(row)
            upload, reason = stored.pop(key, None), incomplete.pop(key, None)
            yield self._of_both(row, upload, None if reason is None else reason["detail"])
        for upload in stored.values():
            row = _row(**_compared(row_of_upload(upload)), stored_size=upload.stored_size)
            yield self._of_stored(row)
        for row in incomplete.values():
            yield self._of_stored(row)

    def _uploads(self) -> list[TierSegment]:
        return [*self.tier.remote_segments, *self.tier.other_copies]

    def _key_of_row(self, row: _Row) -> _Key:
        if self.tier.layout == "pinterest":
            return row["topic"], row["partition"], row["start_offset"]
        return str(row["segment_id"])

    def _incomplete(self) -> dict[_Key, _Row]:
        """Return what is there of segments that cannot be read; note all other problems."""
        found: dict[_Key, _Row] = {}
        read = {self._key_of_row(row_of_upload(one)) for one in self._uploads()}
        for problem in self.tier.problems:
            parts = parts_of_key(self.tier.layout, problem.key)
            if parts is None:
                if is_unread(problem):
                    self.problems.append(tier_problem(self.tier, problem))
                continue
            row = _row(
                topic=parts["topic"],
                partition=int(parts["partition"]),
                start_offset=int(parts["base"]),
                segment_id=parts.get("segment_id"),
                topic_id=parts.get("topic_id"),
                detail=problem.reason,
            )
            key = self._key_of_row(row)
            if key not in read:
                found.setdefault(key, row)
        return found

    def _of_both(self, row: _Row, upload: TierSegment | None, reason: str | None) -> _Row:
        stored_size = None if upload is None else upload.stored_size
        verdict = _TEMPORARY.get(row["state"])
        if verdict is not None:
            there = "its objects are there" if upload is not None else reason or "no objects"
            detail: str | None = there
        elif upload is None:
            verdict, detail = "MISSING_OBJECT", reason or "no objects"
        else:
            detail = "; ".join(_differences(row, upload)) or None
            verdict = "SAME" if detail is None else "DIFFERENT"
        return _row(**_compared(row), verdict=verdict, detail=detail, stored_size=stored_size)

    def _of_stored(self, row: _Row) -> _Row:
        if row["segment_id"] in self.known.deleted_ids or self._is_of_deleted_partition(row):
            return row | {"verdict": "DELETED"}
        return row | {"verdict": "ORPHAN" if self._has_all_records_of(row) else "UNDECIDED"}

    def _is_of_deleted_partition(self, row: _Row) -> bool:
        deleted = self.known.deletions.where(
            topic_id=row["topic_id"],
            partition=row["partition"],
            state="DELETE_PARTITION_FINISHED",
        )
        return len(deleted) > 0

    def _has_all_records_of(self, row: _Row) -> bool:
        if len(self.known.problems):
            return False
        if (row["topic_id"], row["partition"]) in self.known.partitions:
            return True  # all records of a partition are in the same partition
        count = self.metadata_partitions
        return count is not None and self.known.metadata_partitions >= set(range(count))


def _compared(row: _Row) -> _Row:
    """Return the columns of a row of the catalogue that the comparison has, too."""
    return {name: row[name] for name in COMPARED_SCHEMA.names if name in row}


def _row(**known: object) -> _Row:
    return dict.fromkeys(COMPARED_SCHEMA.names) | known


def _differences(row: _Row, upload: TierSegment) -> Iterator[str]:
    """Yield what the record and the objects of a segment say differently."""
    stored = row_of_upload(upload)
    for name in _FACTS:
        if stored[name] is not None and stored[name] != row[name]:
            yield f"{name} {_text(row[name])} is {_text(stored[name])} in remote storage"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
