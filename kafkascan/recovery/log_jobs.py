"""Recover the logs of partitions: plan the changes of each, and apply those of several together."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from kafkascan.format.errors import DuplicateLogError, LinkedFileError, SourceReadError
from kafkascan.format.findings import Severity
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.recovery.apply_changes import ChangeApplier, apply_all
from kafkascan.recovery.loading.loaded_segment import LoadFinding
from kafkascan.recovery.loading.log_loader import LoadedLog, LoadSettings, load_log
from kafkascan.recovery.loading.planned_files import Action, Change, PlannedFiles
from kafkascan.recovery.recovery_results import PartitionRecovery


@dataclass(frozen=True)
class LogJob:
    """
    A log to recover.

    Attributes
    ----------
    partition : PartitionDir
    settings : LoadSettings
    duplicate : Path or None
        Another directory of the same partition.
    logs : set of str
        Names of its logs at the start.
    follow_links : bool
        Whether files behind links may be changed.
    """

    partition: PartitionDir
    settings: LoadSettings
    duplicate: Path | None
    logs: set[str]
    follow_links: bool


def _planned(job: LogJob) -> tuple[PartitionRecovery, PlannedFiles | None]:
    """Load a log and plan its changes; there are no files if it cannot be loaded."""
    one, settings = job.partition, job.settings
    try:
        if job.duplicate is not None:
            raise DuplicateLogError(str(one.path), str(job.duplicate))
        log = load_log(one.path, settings)
        changes = log.files.changes()
        _require(one.path, job.logs - log.files.names_on_disk())
        if not job.follow_links:
            _refuse_links(one.path, changes)
    except Exception as error:  # an error of any kind must not affect other partitions
        return PartitionRecovery(one.path, one.topic, one.partition, error=error), None
    result = PartitionRecovery(
        path=one.path,
        topic=one.topic,
        partition=one.partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        is_tiered=settings.is_tiered,
        segments=log.segments,
        leader_epochs=log.leader_epochs,
        findings=log.findings + _tiering_notes(log, settings),
        changes=changes,
    )
    return result, log.files


def _tiering_notes(log: LoadedLog, settings: LoadSettings) -> list[LoadFinding]:
    """Return a note if a log is taken for one of a tiered topic because of its checkpoint."""
    if not settings.is_tiering_guessed:
        return []
    message = (
        f"the log start offset {log.log_start_offset} in the checkpoint is before the first"
        " segment, and no metadata log describes the topic: it is taken for a tiered topic"
    )
    return [LoadFinding("TIERING_GUESSED", Severity.NOTE, message)]


def recover_logs(
    jobs: list[LogJob], *, write: bool, truncate: bool, backup: bool
) -> list[PartitionRecovery]:
    """Plan the changes of several logs; with `write`, make them, and write the files together."""
    if not write:
        return [_planned(job)[0] for job in jobs]
    results: list[PartitionRecovery] = []
    appliers: list[tuple[PartitionRecovery, ChangeApplier]] = []
    for job in jobs:
        result, files = _planned(job)
        results.append(result)
        if files is not None:
            changes = _permitted(result, truncate=truncate)
            appliers.append((result, ChangeApplier(files, changes, backup=backup)))
    apply_all([applier for _, applier in appliers])
    for result, applier in appliers:
        result.applied, result.error = applier.applied, applier.error
    return results


def _permitted(result: PartitionRecovery, *, truncate: bool) -> list[Change]:
    """
    Without `truncate`, return only the changes that do not depend on a changed log.

    A log that a broker will truncate gets no index, if segments follow: without one, the broker
    keeps those; with one, it drops them.
    """
    changes = result.changes
    if truncate:
        return changes
    if any(change.action is Action.SPLIT for change in changes):
        return []
    cut = {one.name for one in changes if one.action is Action.TRUNCATE}
    before_others = [
        one.name.removesuffix("log") for one in result.segments[:-1] if one.name in cut
    ]
    kinds = ("index", "timeindex", "txnindex")
    indexes = {f"{name}{kind}" for name in before_others for kind in kinds}
    return [one for one in changes if not one.shortens_log and one.name not in indexes]


def _refuse_links(folder: Path, changes: list[Change]) -> None:
    """Raise an error for a link whose target would be written or truncated."""
    for change in changes:
        if change.action in (Action.WRITE, Action.TRUNCATE):
            path = os.path.join(folder, change.name)
            if os.path.islink(path):
                raise LinkedFileError(path)


def log_names(folder: Path) -> set[str]:
    """Return the names of the logs in a partition's folder; empty if it cannot be listed."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.name.endswith(".log")}
    return set()


def require_logs(result: PartitionRecovery, before: set[str]) -> None:
    """Set the error of a partition whose logs vanished, other than by its own changes."""
    removed = {one.name for one in result.applied if one.action in (Action.DELETE, Action.SPLIT)}
    if result.error is None:
        try:
            _require(result.path, before - removed - log_names(result.path))
        except SourceReadError as error:
            result.error = error


def _require(folder: Path, missing: set[str]) -> None:
    if missing:
        reason = "the log vanished during the recovery"
        raise SourceReadError(str(folder / min(missing)), 0, reason)
