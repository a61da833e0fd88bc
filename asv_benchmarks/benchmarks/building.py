"""Building batches. Upper bounds: uncompressed, a copy of the bytes into fresh memory; compressed,
the codec alone over the same records, framed as Kafka frames them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam

import kafkascan as ks
from kafkascan.records.compression import compression

from . import corpora, peers
from .scan import best_of

_HEADER_SIZE = 61
_BATCHES = 1000
BLOCK_SIZE = 1 << 15
"""No batch is larger: snappy and LZ4 make one block of each."""
OPTIONS: dict[str, Any] = {"max_records": corpora.RECORDS_PER_BATCH, "batch_size": 1 << 20}


class Input:
    """A hundred thousand records of about 170 bytes, in every form that they may come in."""

    def __init__(self) -> None:
        path = corpora.records("none")
        batches = ks.scan_batches(path).batches[:_BATCHES]
        end = int(batches["position"][-1]) + int(ks.batches.size_in_bytes(batches)[-1])
        with path.open("rb") as file:
            self.log = file.read(end)
        self.table = ks.read_records(self.log)
        self.count = len(self.table)
        arrow = self.table.to_arrow(columns=("offset", "timestamp", "key", "value"))
        self.arrow = {name: arrow[name] for name in arrow.column_names}
        self.lists = {name: column.to_pylist() for name, column in self.arrow.items()}
        self.lists["timestamp"] = self.table["timestamp"].tolist()
        self.lists["headers"] = [record.headers for record in self.table]
        self.payloads = [
            memoryview(bytes(batch)[_HEADER_SIZE:])
            for batch in ks.iter_built_batches(self.table, **OPTIONS)
        ]
        assert max(map(len, self.payloads)) <= BLOCK_SIZE

    def build(self, form: str, codec: str = "none") -> Callable[[], object]:
        """Return what builds all of it at once."""
        columns = self.table if form == "table" else getattr(self, form)
        return lambda: ks.build_batches(columns, compression_type=codec, **OPTIONS)

    def iterate(self, codec: str = "none") -> Callable[[], object]:
        """Return what builds it batch by batch."""
        return lambda: [
            None
            for _ in ks.iter_built_batches(self.table, compression_type=codec, **OPTIONS)
        ]  # fmt: skip

    def codec_alone(self, codec: str) -> Callable[[], object]:
        """Return what compresses the records of every batch, and does nothing else."""
        compress = _alone(codec)
        return lambda: [compress(payload) for payload in self.payloads]

    def aiokafka(self) -> Callable[[], object]:
        """Return what builds it with aiokafka's C extension."""
        return lambda: peers.aiokafka_build(self.lists, corpora.RECORDS_PER_BATCH)


def _alone(codec: str) -> Callable[[memoryview], object]:
    """Return the fastest call of the library: into memory that is there, if it can do that."""
    room = memoryview(bytearray(2 * BLOCK_SIZE))
    if codec == "snappy":
        return lambda payload: cramjam.snappy.compress_raw_into(payload, room)
    if codec == "lz4":
        return lambda payload: cramjam.lz4.compress_block_into(payload, room, store_size=False)
    return compression(codec).packer(2).compress


class Building:
    params = (corpora.RECORD_CODECS,)
    param_names = ("codec",)
    unit = "ns/record"
    timeout = 600

    def setup(self, codec: str) -> None:
        self.input = Input()

    def per_record(self, function: Callable[[], object]) -> float:
        return best_of(function) / self.input.count * 1e9

    def track_from_table(self, codec: str) -> float:
        return self.per_record(self.input.build("table", codec))

    def track_from_table_one_by_one(self, codec: str) -> float:
        return self.per_record(self.input.iterate(codec))

    def track_from_arrow(self, codec: str) -> float:
        return self.per_record(self.input.build("arrow", codec))

    def track_codec_alone(self, codec: str) -> float:
        if codec == "none":
            raise NotImplementedError
        return self.per_record(self.input.codec_alone(codec))

    def track_aiokafka(self, codec: str) -> float:
        if codec != "none":
            raise NotImplementedError
        return self.per_record(self.input.aiokafka())


for _name in vars(Building).copy():
    if _name.startswith("track_"):
        getattr(Building, _name).unit = Building.unit
