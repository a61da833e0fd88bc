"""The dump of a segment as text, start-up included, and Kafka's own tool on the same file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import kafkascan as ks

from . import corpora
from .scan import best_of

_TEXT = b'{"id": 4711, "state": "shipped", "amount": 19.99, "note": "%s", "to": "Z\xc3\xbcrich"} '
_RECORDS = 50_000
_SMALLEST, _LARGEST = 100, 1000
ARGUMENTS = ("--deep-iteration", "--print-data-log")


def segment(codec: str, size: int) -> Path:
    """Return a segment of batches of 16 KB with texts of 100 to 1000 bytes; it is kept."""
    path = corpora.FOLDER / f"json-{codec}-{size}" / "00000000000000000000.log"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(11)
    notes = random.integers(ord("a"), ord("z"), (10_000, 200), np.uint8)
    pool = b"".join(_TEXT % note.tobytes() for note in notes)
    part = path.with_suffix(".part")
    offset = written = 0
    with part.open("wb") as file:
        while written < size:
            sizes = random.integers(_SMALLEST, _LARGEST, _RECORDS).tolist()
            starts = random.integers(0, len(pool) - _LARGEST, _RECORDS).tolist()
            data = ks.build_batches(
                offset=offset,
                timestamp=1_714_000_000_000 + np.arange(_RECORDS),
                key=[b"key-%d" % number for number in range(offset, offset + _RECORDS)],
                value=[
                    pool[start : start + some] for start, some in zip(starts, sizes, strict=True)
                ],
                compression_type=codec,
            )
            written += file.write(data)
            offset += _RECORDS
    part.rename(path)
    return path


def dump(path: Path) -> None:
    """Print all records of a segment with ``kafkascan dump-log``."""
    command = [sys.executable, "-m", "kafkascan", "dump-log", *ARGUMENTS, "--files"]
    subprocess.run([*command, str(path)], stdout=subprocess.DEVNULL, check=True)


def copy(path: Path) -> None:
    """Count the lines of the file in a pipe of two processes."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        subprocess.run(["wc", "-l"], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)


class DumpLog:
    """All records of a segment, as text."""

    param_names = ("codec",)
    params = ("none", "lz4", "snappy", "zstd", "gzip")

    def setup_cache(self) -> None:
        for codec in self.params:
            segment(codec, corpora.SIZE)

    def track_dump(self, codec: str) -> float:
        """Seconds for each GB of the segment."""
        path = segment(codec, corpora.SIZE)
        return best_of(lambda: dump(path)) / path.stat().st_size * 1e9

    track_dump.unit = "s/GB"
