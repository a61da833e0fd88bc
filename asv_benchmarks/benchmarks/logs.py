"""Whole data dirs: one table of batches, and audits.

Upper bounds: `scan_batches` and `verify_crcs` of each file for itself, which know nothing of
other segments; what goes through a data dir adds what the interpreter does for each segment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import kafkascan as ks
from kafkascan.io.concurrency import map_ordered

from . import corpora
from .scan import best_of


def large(producers: corpora.Producers | None = None) -> Path:
    """A data dir of four partitions, each a segment of 512 MiB (the same file)."""
    suffix = "" if producers is None else producers.suffix
    folder = corpora.FOLDER / f"large-segments{suffix}"
    for partition in range(4):
        log = folder / f"topic-{partition}" / f"{0:020}.log"
        if not log.exists():
            log.parent.mkdir(parents=True, exist_ok=True)
            log.symlink_to(corpora.segment(1_061, varied=True, producers=producers))
    return folder


def idempotent() -> Path:
    """As `large`, written by a hundred producers."""
    return large(corpora.Producers(100))


def transactional() -> Path:
    """As `large`, written by a hundred producers that commit every ten batches."""
    return large(corpora.Producers(100, 10))


def indexed() -> Path:
    """As `large`, with the indexes that a broker keeps beside each segment."""
    folder = corpora.FOLDER / "large-segments-indexed"
    batches = None
    for partition in range(4):
        log = folder / f"topic-{partition}" / f"{0:020}.log"
        if not log.exists():
            log.parent.mkdir(parents=True, exist_ok=True)
            segment = corpora.segment(1_061, varied=True)
            batches = ks.scan_batches(segment).batches if batches is None else batches
            offsets = ks.build_offset_index(batches, base_offset=0)
            ks.write_index(log.with_suffix(".index"), offsets)
            times = ks.build_time_index(batches, base_offset=0)
            ks.write_index(log.with_suffix(".timeindex"), times)
            log.symlink_to(segment)
    return folder


def small(segments: int) -> Path:
    """A data dir of one partition with many segments of 64 batches."""
    folder = corpora.FOLDER / f"small-segments-{segments}" / "topic-0"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        offset = 0
        for _ in range(segments):
            sizes = corpora._sizes(160, True, 64 * 160, offset)
            corpora._batches(sizes, offset).tofile(folder / f"{offset:020}.log")
            offset += len(sizes)
        (folder / "done").touch()
    return folder.parent


def paths(data_dir: Path) -> list[Path]:
    """The segments of a data dir, in order."""
    return [segment.path for _, segment in ks.open_log_dir(data_dir).log_segments()]


def scan_one(path: Path) -> int:
    """Scan a file for itself."""
    return len(ks.scan_batches(path, threads=1))


def verify_one(path: Path) -> bool:
    """Scan and verify a file for itself."""
    with ks.Source(path) as source:
        batches = ks.scan_batches(source, threads=1).batches
        is_whole = bool(ks.verify_crcs(source, batches, threads=1).all())
        del batches
    return is_whole


def each(data_dir: Path, work: Callable[[Path], int], threads: int | None) -> int:
    """Do something with every file for itself, so many at once."""
    return sum(map_ordered(paths(data_dir), lambda one: [work(one)], threads))


def scan_each(data_dir: Path) -> int:
    """Scan every file for itself."""
    return sum(map(scan_one, paths(data_dir)))


def scan_all(data_dir: Path, threads: int | None) -> int:
    """Read one table of all."""
    return sum(len(chunk) for chunk in ks.scan_log_dir(data_dir, threads=threads))


class DataDirs:
    params = (("large", "idempotent", "transactional", "indexed", "small"), ("one", "all"))
    param_names = ("segments", "threads")
    unit = "seconds"
    timeout = 600

    def setup(self, segments: str, threads: str) -> None:
        made = {
            "large": large,
            "idempotent": idempotent,
            "transactional": transactional,
            "indexed": indexed,
            "small": lambda: small(10_000),
        }
        self.data_dir = made[segments]()
        self.threads = 1 if threads == "one" else None
        scan_each(self.data_dir)

    def track_scan_each(self, segments: str, threads: str) -> float:
        return best_of(lambda: each(self.data_dir, scan_one, self.threads), 3)

    def track_verify_each(self, segments: str, threads: str) -> float:
        return best_of(lambda: each(self.data_dir, verify_one, self.threads), 3)

    def track_scan_log_dir(self, segments: str, threads: str) -> float:
        return best_of(lambda: scan_all(self.data_dir, self.threads), 3)

    def track_audit_of_headers(self, segments: str, threads: str) -> float:
        return best_of(lambda: ks.audit(self.data_dir, verify=False, threads=self.threads), 3)

    def track_audit(self, segments: str, threads: str) -> float:
        return best_of(lambda: ks.audit(self.data_dir, threads=self.threads), 3)

    def track_transactions(self, segments: str, threads: str) -> float:
        return best_of(lambda: ks.read_transactions(self.data_dir, threads=self.threads), 3)


class Memory:
    params = ((1, 100, 10_000),)
    param_names = ("segments",)

    def setup(self, segments: int) -> None:
        self.data_dir = small(segments)

    def peakmem_scan_log_dir(self, segments: int) -> None:
        scan_all(self.data_dir, 2)

    def peakmem_audit(self, segments: int) -> None:
        ks.audit(self.data_dir, threads=2)
