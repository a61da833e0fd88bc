"""Segments to measure on, with honest headers and checksums.

Scanning and verifying read no records, so payloads are noise. Batches are all of one size,
or of sizes that vary around it: where all are alike, a CPU's stride prefetcher knows the
next header's address before it is read, which no real segment offers.
"""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import numpy as np

import kafkascan as ks

FOLDER = Path(tempfile.gettempdir()) / "kafkascan-benchmarks"
BATCH_SIZES = (160, 1_061, 16_061)
SIZE = 1 << 29
_PIECE = 1 << 26
_TIME = 1_714_000_000_000


def segment(
    batch_size: int, *, varied: bool = False, size: int = SIZE, producers: Producers | None = None
) -> Path:
    """Return a segment of about `size` bytes; it is written once and kept."""
    path = FOLDER / (
        f"{batch_size}{'-varied' if varied else ''}{'' if producers is None else producers.suffix}"
        f"-{size}.log"
    )
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            written = offset = 0
            while written < size:
                sizes = _sizes(batch_size, varied, min(_PIECE, size - written), offset)
                piece = _batches(sizes, offset, producers)
                piece.tofile(file)
                written += len(piece)
                offset = offset + len(sizes) if producers is None else producers.next_offset
        part.rename(path)
    return path


class Producers:
    """
    Who writes batches: idempotent producers in no order, or transactional ones.

    Parameters
    ----------
    count : int
    batches_per_transaction : int
        Behind so many of its batches, a producer commits; 0 for never.
    """

    def __init__(self, count: int, batches_per_transaction: int = 0) -> None:
        self._per_transaction = batches_per_transaction
        self._written = [0] * count
        self._rng = np.random.default_rng(count)
        self._marker = _marker()
        self.next_offset = 0
        self.suffix = f"-{count}-producers-{batches_per_transaction}"

    def batch(self, size: int, payload: bytes) -> bytes:
        """Return a batch of some producer; with the marker behind it, if it commits."""
        producer = int(self._rng.integers(len(self._written)))
        sequence = self._written[producer]
        self._written[producer] += 1
        attributes = 16 if self._per_transaction else 0
        found = self._framed(size, attributes, producer, sequence, payload)
        if self._per_transaction and not (sequence + 1) % self._per_transaction:
            found += self._framed(61 + len(self._marker), 48, producer, -1, self._marker)
        return found

    def _framed(
        self, size: int, attributes: int, producer: int, sequence: int, payload: bytes
    ) -> bytes:
        covered = struct.pack(
            ">hiqqqhii", attributes, 0, _TIME, _TIME + 5, producer, 0, sequence, 1
        )
        crc = ks.crc32c(payload, ks.crc32c(covered))
        head = struct.pack(">qiibI", self.next_offset, size - 12, 0, 2, crc)
        self.next_offset += 1
        return head + covered + payload


def _marker() -> bytes:
    """Return the record of a COMMIT marker."""
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7)
    return bytes([32, 0, 0, 0, 2 * len(key), *key, 2 * len(value), *value, 0])


RECORD_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS_PER_BATCH = 100


def records(codec: str, size: int = 1 << 28) -> Path:
    """Return a segment of records of about 170 bytes, written by aiokafka's builder.

    `size` is that of the records before they are compressed. Values are words and numbers,
    so that codecs find something to do.
    """
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    path = FOLDER / f"records-{codec}-{size}.log"
    if path.exists():
        return path
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(170)
    words = [rng.bytes(int(n)).hex() for n in rng.integers(2, 7, 500)]
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        written = offset = 0
        while written < size:
            builder = DefaultRecordBatchBuilder(2, _CODEC_NUMBERS[codec], 0, -1, -1, -1, 1 << 20)
            counts = rng.integers(6, 19, RECORDS_PER_BATCH).tolist()
            for number, count in enumerate(counts):
                value = " ".join(words[i] for i in rng.integers(0, 500, count)).encode()
                key = b"key-%06d" % ((offset + number) % 100_000)
                builder.append(number, _TIME + offset + number, key, value, [])
                written += len(key) + len(value) + 12
            batch = bytearray(builder.build())
            struct.pack_into(">q", batch, 0, offset)
            offset += len(counts)
            file.write(batch)
    part.rename(path)
    return path


def repeated(batch_size: int, size: int) -> Path:
    """Return a segment of about `size` bytes that repeats a piece of varied batches.

    The caller removes it. Offsets start again with each piece; nothing but guesses looks at
    them.
    """
    piece = segment(batch_size, varied=True, size=min(size, _PIECE)).read_bytes()
    path = FOLDER / f"{batch_size}-repeated-{size}.log"
    with open(path, "wb") as file:
        for _ in range(max(1, size // len(piece))):
            file.write(piece)
    return path


def _sizes(mean: int, varied: bool, total: int, seed: int) -> np.ndarray:
    count = max(1, total // mean)
    if not varied:
        return np.full(count, mean)
    sizes = np.random.default_rng(seed).gamma(4, mean / 4, count)
    return np.maximum(sizes, 61).astype(np.int64)


def _batches(
    sizes: np.ndarray, first_offset: int, producers: Producers | None = None
) -> np.ndarray:
    """Return the bytes of batches of these sizes, one behind the other."""
    noise = np.random.default_rng(61).bytes(int(sizes.max()))
    if producers is not None:
        found = b"".join(producers.batch(size, noise[: size - 61]) for size in sizes.tolist())
        return np.frombuffer(found, np.uint8)
    ends = np.cumsum(sizes)
    out = bytearray(int(ends[-1]))
    crcs: dict[int, int] = {}
    header = bytearray(
        struct.pack(">qiibIhiqqqhii", 0, 0, 0, 2, 0, 0, 0, _TIME, _TIME + 5, -1, -1, -1, 1)
    )
    covered = bytes(header[21:])
    for number, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        payload = noise[: size - 61]
        if size not in crcs:
            crcs[size] = ks.crc32c(payload, ks.crc32c(covered))
        struct.pack_into(">qi", header, 0, first_offset + number, size - 12)
        struct.pack_into(">I", header, 17, crcs[size])
        out[end - size : end] = header + payload
    return np.frombuffer(out, np.uint8)


def partition(segment_path: Path) -> Path:
    """Return a partition's folder that holds one segment."""
    folder = FOLDER / "partitions" / f"{segment_path.stem}-0"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{0:020}.log"
    if not log.exists():
        os.link(segment_path, log)
    for kind in ("index", "timeindex"):
        log.with_suffix(f".{kind}").touch()
    return folder


def data_dir(folder: Path, *, partitions: int, segments: int, segment_size: int) -> None:
    """Fill a broker's data dir with small segments, whose indexes were lost."""
    batches = np.fromfile(segment(1_061, varied=True, size=segments * segment_size), np.uint8)
    table = ks.scan_batches(batches.data).batches
    starts = np.searchsorted(table["position"], np.arange(segments) * segment_size)
    cuts = [*table["position"][starts].tolist(), len(batches)]
    for number in range(partitions):
        one = folder / f"small-segments-{number}"
        one.mkdir(parents=True)
        for start, first, last in zip(starts.tolist(), cuts[:-1], cuts[1:], strict=True):
            log = one / f"{int(table['base_offset'][start]):020}.log"
            batches[first:last].tofile(log)
            for kind in ("index", "timeindex"):
                log.with_suffix(f".{kind}").touch()


PARTITIONS_PER_TOPIC = 20


def sparse_data_dir(partitions: int, segments: int) -> Path:
    """Return a data dir of segments of one record, with index files; written once and kept."""
    folder = FOLDER / f"sparse-{partitions}-{segments}"
    log = ks.build_batches(value=[b"value"])
    part = folder.with_suffix(".part")
    for number in range(0 if folder.exists() else partitions):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        one = part / f"topic-{topic}-{partition}"
        one.mkdir(parents=True)
        for segment_number in range(segments):
            path = f"{one}/{segment_number * 1000:020d}"
            for kind, data in (("log", log), ("index", b""), ("timeindex", b"")):
                with open(f"{path}.{kind}", "wb") as file:
                    file.write(data)
            # A broker appends to the segments of a partition one after the other.
            modified = _TIME // 1000 + 3600 * segment_number
            os.utime(f"{path}.log", (modified, modified))
    if part.exists():
        part.rename(folder)
    return folder


def bombs(count: int = 4, size: int = 256_000_000) -> Path:
    """Return a log of Zstandard batches that decompress to much more; written once and kept."""
    path = FOLDER / f"bombs-{count}-{size}-0" / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        values = [bytes(1_000_000)] * (size // 1_000_000 - 1)
        log = b"".join(
            ks.build_batches(
                value=values,
                offset=number * len(values),
                batch_size=size,
                compression_type="zstd",
            )
            for number in range(count)
        )
        path.write_bytes(log)
    return path


def as_if_killed(folder: Path) -> None:
    """Leave the last segment of each partition as a broker does that is killed."""
    for one in folder.iterdir():
        if one.is_dir():
            last = max(one.glob("*.log"))
            for kind, size in (("index", 10_485_760), ("timeindex", 10_485_756)):
                with open(last.with_suffix(f".{kind}"), "wb") as file:
                    file.truncate(size)
            max(one.glob("*.snapshot")).unlink()


def copy_sparsely(original: str, copy: str) -> None:
    """Copy a file, and leave out the zeros at its end: preallocated indexes are nothing else."""
    content = Path(original).read_bytes()
    with open(copy, "wb") as file:
        file.write(content.rstrip(b"\0"))
        file.truncate(len(content))
