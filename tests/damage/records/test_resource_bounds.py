"""Hostile records and side files: bounded memory, and time that is linear in the input."""

from __future__ import annotations

import contextlib
import gzip
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import snappy
import xxhash
import zstandard

import kafkascan as ks
from kafkascan.records.decompression import CodecError, decompress
from tests.support.segments import batch_v2, message_v0, message_v1
from tests.support.waiting import IS_SANITIZED
from tests.support.warm_process import run_warm
from tests.support.work import count_calls, require_linear_time

LIMIT = 1 << 24
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

# Reads records with a limit of the memory that may be added from here on.
PROGRAM = """
import resource, sys
import pyarrow, kafkascan.broker_state.checkpoints
import kafkascan as ks, kafkascan.records.decompression

def require_error(action, message):
    try:
        action()
    except ks.format.KafkaScanError as error:
        assert message in str(error), error
    else:
        raise AssertionError("no error")

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
"""
READ = """
require_error(lambda: ks.read_records(sys.argv[1], max_decompressed_size=1 << 24, threads=1), "{}")
"""


def run_limited(path: Path, memory: int, program: str) -> None:
    if IS_SANITIZED:
        pytest.skip("the sanitizer's own memory counts against the limit")
    ended = run_warm(PROGRAM + program, path, memory)
    assert ended.returncode == 0, ended.stderr


def lz4_frame(blocks: bytes) -> bytes:
    header = b"\x04\x22\x4d\x18\x60\x40"
    checksum = xxhash.xxh32_intdigest(header[4:]) >> 8 & 0xFF
    return header + bytes([checksum]) + blocks


def zstd_blocks(block: bytes, count: int) -> bytes:
    return struct.pack("<I", 0xFD2FB528) + b"\0\x58" + block * count + b"\1\0\0"


def zeros_in_gzip(size: int) -> bytes:
    """Return one member; its compressed blocks do not refer to each other, so they may repeat."""
    zeros, crc = bytes(1 << 20), 0
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(size >> 20):
        crc = zlib.crc32(zeros, crc)
    end = packer.flush() + struct.pack("<II", crc, size)
    return b"\x1f\x8b\x08" + bytes(7) + block * (size >> 20) + end


ZSTD_RLE = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\0"
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
BOMB_SIZE = 1 << 27
BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: zeros_in_gzip(BOMB_SIZE)),
    "lz4, dependent blocks": (
        LZ4,
        lambda: lz4.frame.compress(bytes(BOMB_SIZE), block_linked=True),
    ),
    "zstd": (ZSTD, lambda: zstandard.compress(bytes(BOMB_SIZE))),
    "zstd, repeated bytes": (ZSTD, lambda: zstd_blocks(ZSTD_RLE, 1 << 12)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_output_beyond_the_limit_is_not_allocated(tmp_path: Path, bomb: str) -> None:
    codec, build = BOMBS[bomb]
    path = tmp_path / "0.log"
    path.write_bytes(batch_v2(build(), attributes=codec))
    run_limited(path, 5 * LIMIT, READ.format("[OUTPUT_TOO_LARGE]"))


@pytest.mark.parametrize("has_end", [True, False])
def test_tiny_blocks_cost_no_memory_each(tmp_path: Path, has_end: bool) -> None:
    blocks = struct.pack("<I", 0x80000001) + b"x"
    path = tmp_path / "0.log"
    data = lz4_frame(blocks * 4_000_000 + bytes(4) * has_end)
    path.write_bytes(batch_v2(data, attributes=LZ4))
    message = "[BAD_RECORD]" if has_end else "the frame ends without an end mark"
    run_limited(path, 3 * len(data) + 4 * LIMIT, READ.format(message))


def repeated(block: bytes, size: int) -> bytes:
    return block * (size // len(block))


SMALL, LARGE = 250_000, 1_000_000
TINY_PIECES: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "stored lz4 blocks": (LZ4, lambda size: lz4_frame(repeated(b"\1\0\0\x80x", size) + bytes(4))),
    "lz4 blocks": (LZ4, lambda size: lz4_frame(repeated(b"\2\0\0\0\x10x", size) + bytes(4))),
    "snappy chunks": (
        SNAPPY,
        lambda size: XERIAL + repeated(b"\0\0\0\3" + snappy.compress(b"x"), size),
    ),
    "empty snappy chunks": (SNAPPY, lambda size: XERIAL + repeated(b"\0\0\0\1\0", size)),
    "empty snappy chunks before damage": (
        SNAPPY,
        lambda size: XERIAL + repeated(b"\0\0\0\1\0", size) + b"\0" * 4,
    ),
    "snappy streams": (SNAPPY, lambda size: repeated(XERIAL, size)),
    "empty zstd frames": (ZSTD, lambda size: repeated(zstandard.compress(b""), size)),
    "zstd frames of one byte": (ZSTD, lambda size: repeated(zstandard.compress(b"x"), size)),
    "empty zstd blocks": (ZSTD, lambda size: zstd_blocks(b"\0\0\0", size // 3)),
    "zstd frames to skip": (ZSTD, lambda size: repeated(struct.pack("<II", 0x184D2A50, 0), size)),
}


@pytest.mark.skipif(IS_SANITIZED, reason="the sanitizer's allocator takes most of the time")
@pytest.mark.parametrize("case", TINY_PIECES)
def test_tiny_pieces_take_linear_time(case: str) -> None:
    codec, build = TINY_PIECES[case]
    small, large = build(SMALL), build(LARGE)

    def read(data: bytes) -> None:
        with contextlib.suppress(CodecError):
            assert sum(map(len, decompress(codec, 2, data, LIMIT))) <= LARGE

    require_linear_time(lambda: read(small), lambda: read(large))


WRAPPED = {GZIP: gzip.compress, SNAPPY: snappy.compress, LZ4: lz4.frame.compress}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_tiny_batches_are_read_without_a_call_each(codec: str) -> None:
    batch = ks.build_batches({"value": [b""]}, compression_type=codec)
    data = batch * (LARGE // len(batch))
    ks.read_records(data)  # imports
    assert count_calls(lambda: ks.read_records(data)) < LARGE // 500


@pytest.mark.parametrize("codec", WRAPPED)
@pytest.mark.parametrize("magic", [0, 1])
def test_tiny_wrappers_are_read_without_a_call_each(magic: int, codec: int) -> None:
    message = message_v1 if magic else message_v0
    wrapper = message(None, WRAPPED[codec](message(None, b"")), attributes=codec)
    data = wrapper * (LARGE // len(wrapper))
    assert len(ks.read_records(data)) == LARGE // len(wrapper)
    assert count_calls(lambda: ks.read_records(data)) < LARGE // 500


# ---- headers of records -----------------------------------------------------------------------

TO_ARROW = """
headers = ks.read_records(sys.argv[1], columns=["headers"]).to_arrow()["headers"]
assert len(headers) == 1 and headers.nbytes < {}
"""
HEADERS = 1 << 24
# Memory of earlier results that waits to be used again, at most.
FREE_BLOCKS = 1 << 26
SMALLEST_HEADERS = {
    "empty values": (b"\0\0", b""),
    "null values": (b"\0\1", b""),
    "an invalid key": (b"\0\0", b"\2\xff\0"),
}


def record_of_headers(header: bytes, last: bytes) -> bytes:
    count = HEADERS + (last != b"")
    body = b"\0\0\0\1\1" + varint(count) + header * HEADERS + last
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    "headers",
    [
        "empty values",
        pytest.param("null values", marks=pytest.mark.slow),
        pytest.param("an invalid key", marks=pytest.mark.slow),
    ],
)
def test_small_headers_cost_little_memory_each(tmp_path: Path, headers: str) -> None:
    """Two bytes of a file of 3 kB become 8 to 9 bytes in Arrow, and nothing besides."""
    records = record_of_headers(*SMALLEST_HEADERS[headers])
    path = tmp_path / "0.log"
    path.write_bytes(batch_v2(zstandard.compress(records), attributes=ZSTD))
    result = 8 * HEADERS + HEADERS // 8
    # Null values are bytes before they are bits. Keys with replaced characters are copied twice.
    others = {"null values": HEADERS, "an invalid key": 8 * HEADERS}.get(headers, 0)
    memory = 2 * len(records) + result + others + FREE_BLOCKS + (1 << 25)
    run_limited(path, memory, TO_ARROW.format(result + (1 << 20)))


# ---- side files -------------------------------------------------------------------------------

NAMES = ["leader-epoch-checkpoint", "partition.metadata", f"{0:020}.index", f"{0:020}.snapshot"]


def folder_with_hole(folder: Path, name: str) -> Path:
    partition = folder / "orders-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(batch_v2(b"\x0e\0\0\0\1\2x\0"))
    with (partition / name).open("wb") as file:
        file.truncate(1 << 30)
    return partition


@pytest.mark.parametrize("name", NAMES)
def test_a_hole_as_a_side_file(tmp_path: Path, name: str) -> None:
    partition = folder_with_hole(tmp_path, name)
    run_limited(partition, 1 << 28, "ks.audit(sys.argv[1])")
    found = [one for one in ks.audit(partition).findings if one.file == name]
    assert "SIDE_FILE_TOO_LARGE" in " ".join(one.message for one in found)


@pytest.mark.parametrize("name", NAMES)
def test_a_hole_as_a_side_file_in_a_tar(tmp_path: Path, name: str) -> None:
    partition = folder_with_hole(tmp_path, name)
    path = tmp_path / "sparse.tar"
    subprocess.run(["tar", "-S", "-cf", path, "-C", tmp_path, partition.name], check=True)
    found = [one for one in ks.audit(path).findings if one.file == name]
    assert "SIDE_FILE_TOO_LARGE" in " ".join(one.message for one in found)


CHECKPOINT_SIZE = 1 << 22


@pytest.mark.parametrize("end", [b"", b"damaged\n", b"\xff"])
def test_lines_of_checkpoints_cost_no_memory_each(tmp_path: Path, end: bytes) -> None:
    """The bytes of the file, as bytes and as text, and what is kept of its lines: here nothing."""
    count = CHECKPOINT_SIZE // 6
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n%d\n" % count + b"t 1 1\n" * count + end)
    read = "ks.broker_state.read_offset_checkpoint(sys.argv[1])"
    program = f'require_error(lambda: {read}, "[BAD_CHECKPOINT]")' if end else read
    run_limited(path, 4 * CHECKPOINT_SIZE, program)


@pytest.mark.parametrize("name", ["read_leader_epochs", "read_offset_checkpoint"])
def test_large_checkpoints_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n0\n" + bytes(1 << 24))
    with pytest.raises(ks.io.SideFileTooLargeError, match="16777216"):
        getattr(ks.broker_state, name)(path)


# By reader: many lines, each as short as can be.
SHORT_LINES: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "metadata": ("read_partition_metadata", lambda n: b":\n" * n),
    "properties": ("read_meta_properties", lambda n: b"=\n" * n),
    "comments": ("read_meta_properties", lambda n: b"#\n" * n),
    "lists": ("read_clean_shutdown", lambda n: b"[" * n),
    "empty lines": ("read_clean_shutdown", lambda n: b"\n" * n),
}


@pytest.mark.parametrize("case", SHORT_LINES)
def test_lines_of_checkpoints_are_read_without_a_call_each(tmp_path: Path, case: str) -> None:
    name, build = SHORT_LINES[case]
    path = tmp_path / "checkpoint"
    path.write_bytes(build(LARGE // 4))
    reader = getattr(ks.broker_state, name)

    def read() -> None:
        with contextlib.suppress(ks.format.KafkaScanError):
            reader(path)

    read()  # imports
    assert count_calls(read) < LARGE // 500


# ---- indexes ----------------------------------------------------------------------------------

WRONG_ENTRIES = 50_000
FORGED_INDEXES = {
    "index": (ks.format.OFFSET_INDEX_ENTRY, 2),
    "timeindex": (ks.format.TIME_INDEX_ENTRY, 2),
    "txnindex": (ks.format.TRANSACTION_INDEX_ENTRY, 2),
}


@pytest.mark.parametrize("kind", FORGED_INDEXES)
def test_an_index_of_wrong_entries_is_checked_without_a_finding_each(
    tmp_path: Path, kind: str
) -> None:
    dtype, kinds = FORGED_INDEXES[kind]
    entries = np.zeros(WRONG_ENTRIES, dtype)
    entries[dtype.names[-1] if kind != "txnindex" else "last_offset"] = 1 << 30
    entries["position" if kind == "index" else dtype.names[0]] = 7 if kind != "txnindex" else 0
    path = tmp_path / f"{0:020}.{kind}"
    path.write_bytes(entries.tobytes())
    batches = ks.scan_batches(batch_v2(b"\x0e\0\0\0\1\2x\0")).batches
    found = ks.check_index(path, batches)
    assert count_calls(lambda: ks.check_index(path, batches)) < WRONG_ENTRIES // 2
    errors = [one for one in found if one.severity is ks.Severity.ERROR]
    assert len(errors) <= kinds * 1001
    rows: dict[str, int] = {}
    for one in errors:
        rows[one.symbol] = rows.get(one.symbol, 0) + one.count
    assert max(rows.values()) == WRONG_ENTRIES
    last = next(one for one in errors if one.count > 1)
    assert last.count == rows[last.symbol] - 1000
    assert f"and {last.count - 1} later entries are wrong in the same way" in last.message
