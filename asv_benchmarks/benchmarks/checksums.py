"""Checksums. Upper bound of `Verify`: `Touch`, reading every cache line of the segment once.
Upper bound of the sse4.2 kernel in cache: one crc32 instruction per cycle, 8 bytes each."""

from __future__ import annotations

import crc32c as crc32c_package
import numpy as np

import kafkascan as ks
from kafkascan._core import checksums

from . import corpora, peers, yardsticks
from .scan import best_of

GB_PER_S = "GB/s"


class Kernel:
    params = (list(ks.format.crc32c_implementations()), [61, 1_024, 16_384, 1 << 20])
    param_names = ("implementation", "size")

    def track_gb_per_s(self, implementation: str, size: int) -> float:
        data = np.random.default_rng(3720).bytes(size)
        calls = max(1, (1 << 24) // size)

        def run() -> None:
            for _ in range(calls):
                checksums.crc32c(data, 0, implementation)

        return calls * size / best_of(run) / 1e9

    track_gb_per_s.unit = GB_PER_S


class Crc32cPackage:
    params = ([61, 1_024, 16_384, 1 << 20],)
    param_names = ("size",)

    def track_gb_per_s(self, size: int) -> float:
        data = np.random.default_rng(3720).bytes(size)
        calls = max(1, (1 << 24) // size)

        def run() -> None:
            for _ in range(calls):
                crc32c_package.crc32c(data)

        return calls * size / best_of(run) / 1e9

    track_gb_per_s.unit = GB_PER_S


class Verify:
    params = (corpora.BATCH_SIZES, (False, True))
    param_names = ("batch_size", "varied")
    timeout = 300

    def setup(self, batch_size: int, varied: bool) -> None:
        self.source = ks.Source(corpora.segment(batch_size, varied=varied))
        self.data = self.source.as_array()
        yardsticks.touch(self.data)
        self.batches = ks.scan_batches(self.source).batches
        self.log = self.data.tobytes()

    def rate(self, function) -> float:
        return self.source.size / best_of(function) / 1e9

    def track_verify_crcs(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: ks.verify_crcs(self.source, self.batches, threads=1))

    def track_verify_crcs_all_threads(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: ks.verify_crcs(self.source, self.batches))

    def track_touch(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: yardsticks.touch(self.data))

    def track_aiokafka(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: peers.aiokafka_verify(self.log))

    def track_kafka_python(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: peers.kafka_python_verify(self.log))

    def track_crc32c_package(self, batch_size: int, varied: bool) -> float:
        return self.rate(lambda: peers.crc32c_package_verify(self.log, self.batches))


for _name in vars(Verify).copy():
    if _name.startswith("track_"):
        getattr(Verify, _name).unit = GB_PER_S
