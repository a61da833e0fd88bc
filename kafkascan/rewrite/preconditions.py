"""Refuse logs that cannot be rewritten without a loss."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from kafkascan.batches.scan import BatchScan, scan_batches
from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kafkascan.format.errors import RewriteError
from kafkascan.format.layout import ScanEnd
from kafkascan.io.sources import Source
from kafkascan.logs.log_finding import partition_dir

_PARTITION_FILE = re.compile(
    rf"\d{{20}}\..+|{re.escape(LEADER_EPOCH_CHECKPOINT)}|{re.escape(PARTITION_METADATA)}"
)


def require_outside(folder: Path, target: Path) -> None:
    """Refuse a target inside the folder: a broker would read it as part of the log."""
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"{target} is inside {folder}, which is to be rewritten")


def require_batches(source: Source, scan: BatchScan) -> None:
    """Refuse to replace a file without batches: the new one would be empty."""
    if source.size and not len(scan.batches):
        reason = "the file contains no batch, and would be replaced by an empty one"
        raise RewriteError(f"{source.path}: position 0: {reason} [NO_BATCHES]")


def require_regular_files(folder: Path) -> None:
    """Refuse a partition with a FIFO or a folder in place of a file: it cannot be copied."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _PARTITION_FILE.fullmatch(entry.name) and not entry.is_file():
                raise OSError(errno.EINVAL, "not a regular file", entry.path)


def require_no_cleaner_files(folder: Path, states: tuple[str, ...]) -> None:
    """
    Refuse a folder with files of an interrupted cleaner: a broker would complete its work.

    Records may exist in a ``.swap`` file only, so such a folder is not read, either.
    """
    for segment in partition_dir(folder).segments:
        if segment.name.state in states:
            raise ValueError(
                f"{segment.path}: left by an interrupted cleaner; recover the log first"
            )


def require_no_hidden_batches(source: Source, scan: BatchScan) -> None:
    """
    Refuse a tail that contains valid batches: after a damaged length, a scan reports a torn tail.

    An incomplete batch at the end is left out of the new log; batches after damage must not be.
    """
    if scan.end is ScanEnd.TORN_TAIL:
        found = scan_batches(source, on_corrupt="resync")
        if len(found.batches) > len(scan.batches):
            raise found.gaps[0].error
