"""Mark that a rewrite in place has begun, so that the next run completes it after a kill."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kafkascan.format.findings import Finding, Severity
from kafkascan.io.atomic_files import sync_folder

# Brokers ignore such files.
_SUFFIX = ".rewriting"
_MARK = re.compile(rf"\..*{re.escape(_SUFFIX)}")
_PARTITION_MARK = f".partition{_SUFFIX}"


@dataclass(frozen=True)
class PendingRewrite:
    """
    The mark of a rewrite in place: an empty file.

    It is written before side files of the old logs are removed, and removed when those of the new
    logs are complete. In between, some logs are new, and any side file that exists is valid.

    Attributes
    ----------
    folder : Path
    log : str or None
        Name of the log that is rewritten; None for all logs of the partition.
    """

    folder: Path
    log: str | None

    def is_interrupted(self) -> bool:
        """Return whether an earlier rewrite of these logs did not end."""
        names = os.listdir(self.folder)
        if self.log is None:
            return any(map(_MARK.fullmatch, names))
        return self._name in names or _PARTITION_MARK in names

    def begin(self) -> None:
        """Write the mark, and make it durable."""
        (self.folder / self._name).touch()
        sync_folder(self.folder)

    def end(self) -> None:
        """Remove the mark, and for a partition those of single logs."""
        for name in os.listdir(self.folder):
            if name == self._name or (self.log is None and _MARK.fullmatch(name)):
                os.unlink(self.folder / name)
        sync_folder(self.folder)

    @property
    def _name(self) -> str:
        return _PARTITION_MARK if self.log is None else f".{self.log}{_SUFFIX}"


def completed_findings(path: Path) -> list[Finding]:
    """Report that an interrupted rewrite was completed: maybe no log has changed now."""
    message = f"{path}: an interrupted rewrite was completed, and its side files were rebuilt"
    return [Finding("COMPLETED", Severity.NOTE, message)]
