"""The header scan by batch size. Upper bound: `Yardstick.track_ns_per_batch` is what a plain
dependent walk in C takes; one header per batch has to be fetched from memory by anyone."""

from __future__ import annotations

import time

import numpy as np

import kafkascan as ks

from . import corpora, peers, yardsticks


def best_of(function, repeats: int = 5) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class _Segment:
    params = (corpora.BATCH_SIZES, (False, True))
    param_names = ("batch_size", "varied")
    unit = "ns/batch"
    timeout = 300

    def setup(self, batch_size: int, varied: bool) -> None:
        path = corpora.segment(batch_size, varied=varied)
        self.source = ks.Source(path)
        self.data = self.source.as_array()
        yardsticks.touch(self.data)
        self.count = len(ks.scan_batches(self.source))

    def per_batch(self, function) -> float:
        return best_of(function) / self.count * 1e9


class Scan(_Segment):
    def track_scan_batches(self, batch_size: int, varied: bool) -> float:
        return self.per_batch(lambda: ks.scan_batches(self.source, threads=1))

    def track_iter_batches(self, batch_size: int, varied: bool) -> float:
        return self.per_batch(lambda: [None for _ in ks.iter_batches(self.source)])

    def track_without_a_map(self, batch_size: int, varied: bool) -> float:
        path = corpora.segment(batch_size, varied=varied)
        with ks.Source(path, memory_map=False) as source:
            return self.per_batch(lambda: ks.scan_batches(source, threads=1))

    def peakmem_scan_batches(self, batch_size: int, varied: bool) -> None:
        ks.scan_batches(self.source)


class Yardstick(_Segment):
    def track_ns_per_batch(self, batch_size: int, varied: bool) -> float:
        rows = np.ones((self.count + 1, yardsticks.ROW_SIZE), np.uint8)
        return self.per_batch(lambda: yardsticks.plain_walk(self.data, rows))


class Peers(_Segment):
    def setup(self, batch_size: int, varied: bool) -> None:
        super().setup(batch_size, varied)
        self.log = self.data.tobytes()

    def track_aiokafka(self, batch_size: int, varied: bool) -> float:
        return self.per_batch(lambda: peers.aiokafka_walk(self.log))

    def track_kafka_python(self, batch_size: int, varied: bool) -> float:
        return self.per_batch(lambda: peers.kafka_python_walk(self.log))


for _suite in (Scan, Yardstick, Peers):
    for _name in vars(_suite).copy():
        if _name.startswith("track_"):
            getattr(_suite, _name).unit = _Segment.unit
