"""Header fields rewritten in memory. Upper bound with new checksums: `Verify`, which reads the same
bytes; without, one cache line for each batch."""

from __future__ import annotations

import itertools

import numpy as np

import kafkascan as ks

from . import corpora, yardsticks
from .scan import best_of

GB_PER_S = "GB/s"


class Restamp:
    params = (corpora.BATCH_SIZES,)
    param_names = ("batch_size",)
    timeout = 300

    def setup(self, batch_size: int) -> None:
        self.data = np.fromfile(corpora.segment(batch_size, varied=True), np.uint8)
        self.batches = ks.scan_batches(self.data).batches
        yardsticks.touch(self.data)
        self.times = itertools.count(1)

    def rate(self, function) -> float:
        return self.data.size / best_of(function) / 1e9

    def sign(self) -> None:
        """Another time in each round, so that every checksum is computed again."""
        self.batches = ks.rewrite.restamp_in_place(
            self.data, self.batches, max_timestamp=next(self.times)
        )

    def move(self) -> None:
        """Offsets and leader epochs, which no checksum covers."""
        offsets = ks.batches.last_offset(self.batches) + 1
        self.batches = ks.rewrite.restamp_in_place(
            self.data, self.batches, last_offset=offsets, partition_leader_epoch=next(self.times)
        )

    def track_max_timestamp(self, batch_size: int) -> float:
        return self.rate(self.sign)

    def track_offsets_and_epochs(self, batch_size: int) -> float:
        return self.rate(self.move)

    def track_verify_crcs(self, batch_size: int) -> float:
        return self.rate(lambda: ks.verify_crcs(self.data, self.batches, threads=1))

    def track_touch(self, batch_size: int) -> float:
        return self.rate(lambda: yardsticks.touch(self.data))


for _name in vars(Restamp).copy():
    if _name.startswith("track_"):
        getattr(Restamp, _name).unit = GB_PER_S
