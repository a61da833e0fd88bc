"""Scans that go on behind damage, salvage and comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import kafkascan as ks
from kafkascan.batches.resyncing.resync import scan_with_resync

from . import corpora
from .scan import best_of

DAMAGED_BATCHES = 100


def damaged(batch_size: int) -> Path:
    """Return a segment of which a hundred batches have a broken length."""
    intact = corpora.segment(batch_size, varied=True)
    path = intact.with_name(f"damaged-{intact.name}")
    if not path.exists():
        data = np.fromfile(intact, np.uint8)
        positions = ks.scan_batches(intact).batches["position"]
        hurt = positions[np.linspace(1, len(positions) - 2, DAMAGED_BATCHES).astype(int)]
        data[hurt + 8] ^= 0x80
        data.tofile(path)
    return path


def hostile(size: int = 1 << 26) -> bytes:
    """Return bytes that are full of plausible headers, each of which claims all that follows."""
    import struct

    header = struct.pack(">qiibIhiqqqhii", 5, size // 2, 0, 2, 7, 0, 0, 0, 0, -1, -1, -1, 1)
    return b"\xff" * 20 + header * (size // len(header))


class Resync:
    params = (1_061, 16_061)
    param_names = ("batch_size",)
    unit = "ms"

    def setup(self, batch_size: int) -> None:
        self.intact = ks.Source(corpora.segment(batch_size, varied=True))
        self.damaged = ks.Source(damaged(batch_size))

    def track_intact(self, batch_size: int) -> float:
        return 1e3 * best_of(lambda: ks.scan_batches(self.intact, on_corrupt="resync"))

    def track_damaged(self, batch_size: int) -> float:
        return 1e3 * best_of(lambda: ks.scan_batches(self.damaged, on_corrupt="resync"))

    def track_verified(self, batch_size: int) -> float:
        return 1e3 * best_of(
            lambda: scan_with_resync(self.damaged, 0, self.damaged.size, verify=True)
        )

    def track_diff(self, batch_size: int) -> float:
        path = corpora.segment(batch_size, varied=True)
        return 1e3 * best_of(lambda: ks.diff_logs(path, path))


class Search:
    unit = "GB/s"

    def track_hostile_bytes(self) -> float:
        data = hostile()
        return len(data) / best_of(lambda: ks.scan_batches(data, on_corrupt="resync"), 2) / 1e9

    def track_noise(self) -> float:
        data = b"\xff" * 20 + np.random.default_rng(1).bytes(1 << 26)
        return len(data) / best_of(lambda: ks.scan_batches(data, on_corrupt="resync"), 2) / 1e9


for _suite in (Resync, Search):
    for _name in vars(_suite).copy():
        if _name.startswith("track_"):
            getattr(_suite, _name).unit = _suite.unit
