"""Compare remote storage with what the cluster knows: segments, topics and their retention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kafkascan.auditing.cluster_checks import ClusterChecks
from kafkascan.auditing.finding_kinds import FoundInLog
from kafkascan.format.errors import KafkaScanError, NoLogsError
from kafkascan.internal_topics.metadata.metadata_reading import Metadata, read_metadata
from kafkascan.internal_topics.tier_comparison import (
    VERDICTS,
    compare_remote_segments,
)
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.tiered.tier_listing import TieredLogs

_KINDS = {
    "MISSING_OBJECT": "MISSING_OBJECT",
    "DIFFERENT": "CATALOGUE_MISMATCH",
    "DELETED": "LEFTOVER_SEGMENT",
    "ORPHAN": "ORPHANED_SEGMENT",
    "UPLOADING": "UNFINISHED_TRANSFER",
    "DELETING": "UNFINISHED_TRANSFER",
}
# Brokers delete in intervals (`remote.log.manager.task.interval.ms`, 30 s), and one after the
# other.
_GRACE_MS = 3_600_000

_Row = dict[str, Any]


def check_cluster_records(tier: TieredLogs, cluster: LogDirLike, now_ms: int) -> ClusterChecks:
    """
    Compare remote storage with the records of the cluster in a data dir.

    Parameters
    ----------
    tier : TieredLogs
    cluster : path, URL or LogDir
        With ``__remote_log_metadata`` and, for topics and their settings, the metadata log.
    now_ms : int
        For retention, in milliseconds since the epoch.

    Raises
    ------
    As `open_log_dir`.
    """
    log_dir = cluster if isinstance(cluster, LogDir) else open_log_dir(cluster)
    checks = ClusterChecks()
    try:
        compared = compare_remote_segments(log_dir, tier)
    except NoLogsError as error:
        checks.unchecked.append(f"the segments that the cluster knows: not checked: {error}")
        return checks
    checks.unchecked += map(str, compared.problems)
    rows = compared.segments.rows()
    undecided = sum(row["verdict"] == "UNDECIDED" for row in rows)
    if undecided:
        text = f"{undecided:,} segments: not checked: {VERDICTS['UNDECIDED']}"
        checks.unchecked.append(text)
    metadata = _metadata_of(log_dir, checks)
    by_partition: dict[tuple[str, str | None, int], list[_Row]] = defaultdict(list)
    for row in rows:
        by_partition[row["topic"], row["topic_id"], row["partition"]].append(row)
    for (topic, topic_id, partition), own in by_partition.items():
        name = f"{topic}-{partition}" + ("" if topic_id is None else f"-{topic_id}")
        found = FoundInLog(topic, partition, tier.path / name)
        _add_verdicts(own, found)
        if metadata is not None:
            _check_topic(topic, topic_id, own, metadata, now_ms, found)
        checks.findings += found.findings()
    return checks


def _metadata_of(log_dir: LogDir, checks: ClusterChecks) -> Metadata | None:
    try:
        return read_metadata(log_dir)
    except (KafkaScanError, OSError) as error:
        checks.unchecked.append(f"deleted topics and retention: not checked: {error}")
        return None


def _add_verdicts(rows: Iterable[_Row], found: FoundInLog) -> None:
    for row in rows:
        symbol = _KINDS.get(row["verdict"])
        if symbol is not None:
            detail = "" if row["detail"] is None else f": {row['detail']}"
            message = f"segment {row['segment_id']}: {VERDICTS[row['verdict']]}{detail}"
            found.add(symbol, _file(row), message, offset=row["start_offset"])


def _file(row: _Row) -> str:
    return f"{row['start_offset']:020}.log"


def _check_topic(
    topic: str,
    topic_id: str | None,
    rows: list[_Row],
    metadata: Metadata,
    now_ms: int,
    found: FoundInLog,
) -> None:
    ids = metadata["topics"].where(topic=topic)["topic_id"]
    stored = [row for row in rows if row["stored_size"] is not None]
    if stored and (not ids or topic_id not in (None, *ids)):
        size = sum(row["stored_size"] for row in stored)
        message = (
            f"the cluster has no topic with the id {topic_id}, and {len(stored):,} segments with"
            f" {size:,} bytes are there"
        )
        found.add("DELETED_TOPIC", None, message, count=len(stored))
        return
    settings = metadata["configs"].where(resource_type="topic", resource=topic)
    known = dict(zip(settings["name"], settings["value"], strict=True))
    _check_retention(rows, known, now_ms, found)


def _check_retention(
    rows: Iterable[_Row], settings: Mapping[str, str], now_ms: int, found: FoundInLog
) -> None:
    """Compare the segments that consumers read with a topic's own settings."""
    read = sorted(
        (row for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"),
        key=lambda row: int(row["start_offset"]),
    )
    _check_retention_ms(read, _limit(settings.get("retention.ms")), now_ms, found)
    _check_retention_bytes(read, _limit(settings.get("retention.bytes")), found)


def _limit(text: str | None) -> int | None:
    """Return a limit of retention; None if there is none, or if it is not the topic's own."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


def _check_retention_ms(
    rows: list[_Row], limit: int | None, now_ms: int, found: FoundInLog
) -> None:
    if limit is None:
        return
    late = [
        row
        for row in rows
        if (row["max_timestamp"] or -1) >= 0 and row["max_timestamp"] + limit + _GRACE_MS < now_ms
    ]
    if late:
        age = now_ms - late[0]["max_timestamp"] - limit
        message = f"retention.ms {limit} has passed {age // 3_600_000:,} hours ago"
        _note_late(late, message, found)


def _check_retention_bytes(rows: list[_Row], limit: int | None, found: FoundInLog) -> None:
    """Compare the segments that are not needed to reach the limit; local ones are not known."""
    if limit is None:
        return
    excess, late = sum(row["size"] for row in rows) - limit, 0
    for row in rows:
        excess -= row["size"]
        if excess < 0:
            break
        late += 1
    if late:
        message = f"retention.bytes is {limit:,}: {late:,} segments are beyond it"
        _note_late(rows[:late], message, found)


def _note_late(rows: list[_Row], message: str, found: FoundInLog) -> None:
    offset = rows[0]["start_offset"]
    found.add("RETENTION_EXCEEDED", _file(rows[0]), message, offset=offset, count=len(rows))
