"""Records: written records are read back; damage is refused as by the reference reader."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from hypothesis import given, strategies as st

import kafkascan as ks
from tests.support.examples import examples
from tests.support.records import NotRecordsError, RecordV2, batch_of, read_slowly
from tests.support.segments import T0, batch_v2, sign

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.binary(max_size=20), maybe_bytes), max_size=4)
record_lists = st.lists(
    st.builds(
        RecordV2,
        key=maybe_bytes,
        value=maybe_bytes,
        headers=headers,
        offset_delta=st.integers(0, 2**31 - 1) | st.integers(0, 200),
        timestamp_delta=st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000),
        attributes=st.integers(0, 255),
    ),
    min_size=1,
    max_size=30,
)


def rows(table: ks.RecordTable) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in table]


def xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), 32768):
        chunk = snappy.compress(data[at : at + 32768])
        out += struct.pack(">i", len(chunk)) + chunk
    return out


def lz4_kafka(data: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(
        data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False
    )
    return frame


CODECS: dict[str, tuple[int, Any]] = {
    "gzip": (1, gzip.compress),
    "gzip members": (1, lambda d: gzip.compress(d[:9]) + gzip.compress(d[9:])),
    "gzip and junk": (1, lambda d: gzip.compress(d) + b"junk"),
    "snappy": (2, xerial),
    "raw snappy": (2, snappy.compress),
    "lz4": (3, lz4_kafka),
    "lz4 and junk": (3, lambda d: lz4_kafka(d) + b"junk"),
    "lz4 sized and linked": (3, lz4.frame.compress),
    "lz4 checksums": (3, lambda d: lz4.frame.compress(
        d, block_linked=False, block_checksum=True, content_checksum=True)),
    "lz4 content checksum": (3, lambda d: lz4.frame.compress(
        d, block_linked=False, content_checksum=True)),
    "zstd": (4, zstandard.ZstdCompressor(write_content_size=False).compress),
    "zstd sized": (4, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd frames": (4, lambda d: zstandard.compress(d[:9]) + b"\x50\x2a\x4d\x18\x02\0\0\0hi"
                    + zstandard.compress(d[9:])),
}  # fmt: skip


def compressed(batch: bytes, codec: str) -> bytes:
    """Return the same batch with compressed records and a correct checksum."""
    number, compress = CODECS[codec]
    out = bytearray(batch[:61] + compress(batch[61:]))
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">h", out, 21, struct.unpack_from(">h", batch, 21)[0] | number)
    sign(out)
    return bytes(out)


@given(record_lists, st.sampled_from([0, 8]), st.sampled_from(["none", *CODECS]))
@examples(300)
def test_written_records_are_read_back(
    records: list[RecordV2], attributes: int, codec: str
) -> None:
    batch = batch_of(records, base_offset=70, attributes=attributes, max_timestamp=T0 + 5)
    expected = read_slowly(batch)
    if codec != "none":
        batch = compressed(batch, codec)
    table = ks.read_records(batch + batch, verify=True)
    assert rows(table) == expected * 2
    parts = ks.iter_records(batch * 3, batch_size=1)
    assert [rows(part) for part in parts if len(part)] == [expected] * 3
    arrow = table.to_arrow()
    assert arrow["key"].to_pylist() == [row[2] for row in expected] * 2
    views = table.to_arrow(views=True)
    assert views["value"].to_pylist() == [row[3] for row in expected] * 2
    narrow = ks.read_records(batch, columns=["timestamp", "offset"])
    assert narrow["offset"].tolist() == [row[0] for row in expected]
    assert narrow["timestamp"].tolist() == [row[1] for row in expected]


@given(record_lists, st.data())
@examples(400)
def test_damage_is_reported_like_the_reference_reader(records: list[RecordV2], data: Any) -> None:
    batch = bytearray(batch_of(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(61, len(batch) - 1) | st.integers(57, 60))
        batch[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(61, len(batch)))
        batch = batch[:cut] + data.draw(st.binary(max_size=3))
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    sign(batch)
    try:
        expected = read_slowly(bytes(batch))
    except NotRecordsError:
        with pytest.raises(ks.InvalidRecordError):
            ks.read_records(bytes(batch))
        return
    assert rows(ks.read_records(bytes(batch))) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_byte_of_compressed_records(codec: str) -> None:
    """Damage with a correct checksum is refused or decoded, and never crashes."""
    records = [RecordV2(b"key", bytes(range(100)) * 3, [(b"h", b"v")], i, i) for i in range(5)]
    honest = compressed(batch_of(records), codec)
    refused = 0
    for at in range(61, len(honest)):
        batch = bytearray(honest)
        batch[at] ^= 0x55
        assert not ks.verify_crcs(bytes(batch), ks.scan_batches(bytes(batch)).batches).any()
        sign(batch)
        for cut in (bytes(batch), cut_to(batch, at)):
            try:
                ks.read_records(cut)
            except ks.InvalidRecordError as error:
                assert error.position == 0
                refused += 1
    assert refused > (len(honest) - 61) // 2


def cut_to(batch: bytearray, size: int) -> bytes:
    out = bytearray(batch[:size])
    struct.pack_into(">i", out, 8, len(out) - 12)
    sign(out)
    return bytes(out)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "raw snappy", "lz4", "lz4 checksums", "zstd"])
def test_a_decompression_bomb_is_an_error(codec: str) -> None:
    records = [RecordV2(None, bytes(3_000_000))]
    batch = compressed(batch_of(records), codec)
    assert len(batch) < 200_000
    with pytest.raises(ks.InvalidRecordError, match=r"exceed.*\[OUTPUT_TOO_LARGE\]"):
        ks.read_records(batch, max_decompressed_size=1_000_000)
    assert len(ks.read_records(batch, max_decompressed_size=3_000_100)) == 1


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 6, 2**31 - 1])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_wrong_records_count(count: int, codec: str) -> None:
    batch = bytearray(batch_of([RecordV2(offset_delta=i) for i in range(5)]))
    struct.pack_into(">i", batch, 57, count)
    sign(batch)
    lying = bytes(batch) if codec == "none" else compressed(bytes(batch), codec)
    with pytest.raises(ks.InvalidRecordError) as caught:
        ks.read_records(lying)
    expected = {4: "RECORDS_LEFT", -1: "BAD_RECORD_COUNT", -(2**31): "BAD_RECORD_COUNT"}
    assert caught.value.symbol == expected.get(count, "RECORDS_MISSING")


def test_a_batch_without_records_may_contain_any_bytes() -> None:
    """Kafka does not read the bytes of such a batch."""
    assert len(ks.read_records(batch_v2(b"junk", records_count=0))) == 0
    assert len(ks.read_records(batch_v2(b"junk", records_count=0, attributes=4))) == 0


def test_sequences_wrap() -> None:
    records = [RecordV2(offset_delta=delta) for delta in (0, 1, 3)]
    batch = batch_of(records, base_sequence=2**31 - 2, producer_id=9, producer_epoch=2)
    table = ks.read_records(batch, columns=["sequence", "producer_id"])
    assert table["sequence"].tolist() == [2**31 - 2, 2**31 - 1, 1]
    assert table["producer_id"].tolist() == [9, 9, 9]
    assert ks.read_records(batch)[2].sequence == 1


def test_iteration_yields_the_records_before_the_damage() -> None:
    good = batch_of([RecordV2()], base_offset=1)
    bad = bytearray(batch_of([RecordV2()], base_offset=2))
    bad[61] ^= 0xFF
    sign(bad)
    log = good * 3 + bytes(bad) + good
    tables = ks.iter_records(log)
    assert [len(next(tables)) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(ks.InvalidRecordError) as caught:
        next(tables)
    assert caught.value.position == 3 * len(good)
    assert caught.value.base_offset == 2


@pytest.mark.parametrize("verify", [False, True])
def test_on_damage_skips_damaged_batches(verify: bool) -> None:
    log = bytearray(b"".join(batch_of([RecordV2()], base_offset=i) for i in range(50)))
    size = len(log) // 50
    for index in (0, 7, 8, 49):
        log[index * size + (62 if verify else 61)] ^= 0xFF  # attributes, or the length
        if not verify:
            part = bytearray(log[index * size : (index + 1) * size])
            sign(part)
            log[index * size : (index + 1) * size] = part
    errors: list[ks.CorruptBatchError] = []
    tables = list(ks.iter_records(bytes(log), verify=verify, threads=2, on_damage=errors.append))
    offsets = [record.offset for table in tables for record in table]
    assert offsets == [i for i in range(50) if i not in (0, 7, 8, 49)]
    assert [error.base_offset for error in errors] == [0, 7, 8, 49]
    expected = ks.ChecksumMismatchError if verify else ks.InvalidRecordError
    assert {type(error) for error in errors} == {expected}


def test_checksums_are_verified_first() -> None:
    batch = bytearray(compressed(batch_of([RecordV2(value=bytes(300))]), "zstd"))
    batch[62] ^= 0xFF
    for read in (ks.read_records, lambda *a, **k: list(ks.iter_records(*a, **k))):
        with pytest.raises(ks.ChecksumMismatchError):
            read(bytes(batch), verify=True)


def test_more_gzip_members_than_any_writer_makes_are_refused() -> None:
    records = b"".join(RecordV2(offset_delta=i).encode() for i in range(3))

    def batch_with(count: int) -> bytes:
        payload = gzip.compress(b"") * (count - 2) + gzip.compress(records) + gzip.compress(b"")
        return batch_v2(payload, attributes=1, records_count=3)

    assert len(ks.read_records(batch_with(1000))) == 3
    with pytest.raises(ks.CorruptBatchError, match="more than 1000 members"):
        ks.read_records(batch_with(1001))


def test_reused_memory_is_not_visible() -> None:
    batches = [
        compressed(batch_of([RecordV2(value=bytes([i]) * 50)], base_offset=i), "zstd")
        for i in range(3)
    ]
    tables = ks.iter_records(b"".join(batches), batch_size=1)
    first = next(tables)
    view = first.to_arrow(views=True)["value"]
    del first
    next(tables)
    assert view.to_pylist() == [bytes(50)]
    for table in tables:
        assert table[0].value == bytes([2]) * 50


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(4)
    names = ["none", *CODECS]
    parts = []
    for index in range(600):
        records = [
            RecordV2(rng.bytes(8), rng.bytes(int(rng.integers(0, 2000))), [], i) for i in range(20)
        ]
        batch = batch_of(records, base_offset=index * 20)
        codec = names[index % len(names)]
        parts.append(batch if codec == "none" else compressed(batch, codec))
    log = b"".join(parts)
    alone = ks.read_records(log, threads=1).to_arrow()
    assert ks.read_records(log, threads=3).to_arrow().equals(alone)
    assert len(alone) == 12_000
