"""Decoding records. Upper bounds: touching every line of the segment once; of compressed
records, the codec's library alone over the same bytes; of gathering, a copy into fresh memory."""

from __future__ import annotations

import struct
from collections.abc import Callable

import lz4.frame
import snappy
import zstandard
from isal import isal_zlib

import kafkascan as ks

from . import corpora, peers, yardsticks
from .scan import best_of

_HEADER_SIZE = 61
_XERIAL_HEADER_SIZE = 16


def _unxerial(payload: bytes) -> list[bytes]:
    """The chunks of a xerial stream."""
    chunks, at = [], _XERIAL_HEADER_SIZE
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        chunks.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return chunks


def codec_alone(codec: str, source: ks.Source) -> Callable[[], None]:
    """Return what decompresses every batch with the codec's library, and does nothing else."""
    batches = ks.scan_batches(source).batches
    data = source.as_array()
    payloads = [
        data[position + _HEADER_SIZE : position + 12 + length].tobytes()
        for position, length in zip(
            batches["position"].tolist(), batches["batch_length"].tolist(), strict=True
        )
    ]
    if codec == "snappy":
        payloads = [chunk for payload in payloads for chunk in _unxerial(payload)]
    zstd = zstandard.ZstdDecompressor()
    one: Callable[[bytes], bytes] = {
        "gzip": lambda payload: isal_zlib.decompress(payload, 31),
        "snappy": snappy.uncompress,
        "lz4": lz4.frame.decompress,
        "zstd": lambda payload: zstd.decompressobj().decompress(payload),
    }[codec]

    def run() -> None:
        for payload in payloads:
            one(payload)

    return run


class Records:
    params = (corpora.RECORD_CODECS,)
    param_names = ("codec",)
    unit = "ns/record"
    timeout = 600

    def setup(self, codec: str) -> None:
        self.source = ks.Source(corpora.records(codec))
        yardsticks.touch(self.source.as_array())
        self.batches = ks.scan_batches(self.source).batches
        self.count = int(self.batches["records_count"].sum())

    def per_record(self, function: Callable[[], object]) -> float:
        return best_of(function, 3) / self.count * 1e9

    def track_read_records(self, codec: str) -> float:
        return self.per_record(lambda: ks.read_records(self.source, self.batches, threads=1))

    def track_iter_records(self, codec: str) -> float:
        return self.per_record(lambda: [None for _ in ks.iter_records(self.source, self.batches)])

    def track_offsets_and_timestamps(self, codec: str) -> float:
        return self.per_record(
            lambda: [
                None
                for _ in ks.iter_records(self.source, self.batches, columns=["offset", "timestamp"])
            ]
        )

    def track_to_arrow(self, codec: str) -> float:
        return self.per_record(
            lambda: [None for table in ks.iter_records(self.source, self.batches)
                     if table.to_arrow() is None]
        )  # fmt: skip

    def track_codec_alone(self, codec: str) -> float:
        if codec == "none":
            raise NotImplementedError
        return self.per_record(codec_alone(codec, self.source))

    def track_aiokafka(self, codec: str) -> float:
        log = self.source.as_array().tobytes()
        return best_of(lambda: peers.aiokafka_records(log), 1) / self.count * 1e9

    def peakmem_iter_records(self, codec: str) -> None:
        for _ in ks.iter_records(self.source, self.batches):
            pass


for _name in vars(Records).copy():
    if _name.startswith("track_"):
        getattr(Records, _name).unit = Records.unit
