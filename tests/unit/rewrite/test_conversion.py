from __future__ import annotations

import random
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.log_corpus import NONE, marker, random_log
from tests.support.segments import T0, message_v1


def messages(count: int, size: int = 100) -> bytes:
    return b"".join(
        message_v1(b"k", b"x" * size, offset=at, timestamp=T0 + at) for at in range(count)
    )


def test_messages_are_gathered() -> None:
    data = messages(50)
    one_each = ks.scan_batches(ks.convert_records(data, to_magic=2, batch_size=1).data)
    assert len(one_each) == 50
    several = ks.scan_batches(ks.convert_records(data, to_magic=2, batch_size=1350).data)
    assert several["records_count"].tolist() == [10] * 5
    wrappers = ks.convert_records(data, compression_type="gzip", batch_size=1350).data
    assert len(ks.scan_batches(wrappers)) == 5
    assert ks.read_records(wrappers)["offset"].tolist() == list(range(50))


def test_batches_between_messages_keep_their_position() -> None:
    middle = ks.build_batches(offset=3, timestamp=[T0], value=[b"v"])
    last = b"".join(message_v1(offset=at) for at in (4, 5))
    converted = ks.convert_records(messages(3) + middle + last, to_magic=2).data
    assert ks.scan_batches(converted)["base_offset"].tolist() == [0, 3, 4]
    assert middle in converted


def test_batches_of_the_new_format_are_copied() -> None:
    data = random_log(random.Random(5), magics=(2,), codecs=(NONE,))
    done = ks.convert_records(data, to_magic=2, compression_type="none")
    assert done.data == data
    assert done.report.copied == done.report.batches == 6
    assert done.report.lost == {}


@pytest.mark.parametrize("producer_id", [0, 1])
def test_losses_are_counted(producer_id: int) -> None:
    data = ks.build_batches(
        timestamp=[T0, T0], value=[b"a", b"b"], headers=[[(b"h", b"1"), (b"h", b"2")], []],
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True,
        partition_leader_epoch=3,
    )  # fmt: skip
    data += marker(2, "COMMIT", producer_id)
    done = ks.convert_records(data, to_magic=0)
    assert done.report.lost == {
        "headers": 2,
        "timestamps": 2,
        "control_batches": 1,
        "transactional_batches": 1,
        "idempotent_batches": 1,
        "leader_epochs": 2,
    }
    assert done.report.dropped == 1
    assert done.report.new_size == len(done.data)
    assert ks.read_records(done.data).items("value") == [b"a", b"b"]


def test_control_batches_are_not_compressed() -> None:
    data = marker(0, "COMMIT", 1)
    assert ks.convert_records(data, compression_type="zstd").data == data


def test_recompression_keeps_records_byte_for_byte() -> None:
    data = random_log(random.Random(11), magics=(2,), codecs=(NONE,), batches=20)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        small = ks.convert_records(data, compression_type=codec)
        assert small.report.recompressed > 10
        assert ks.convert_records(small.data, compression_type="none").data == data


@pytest.mark.parametrize(
    "options",
    [
        {"to_magic": 3},
        {"to_magic": 1, "compression_type": "zstd"},
        {"compression_type": "brotli"},
        {"compression_type": "gzip", "compression_level": 10},
        {"compression_level": 3},
        {"to_magic": 2, "batch_size": 0},
    ],
)
def test_formats_and_codecs_that_do_not_exist(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        ks.convert_records(messages(2), **options)  # type: ignore[arg-type]


def test_zstandard_needs_magic_2() -> None:
    zstd = ks.build_batches(timestamp=[T0], value=[b"v"], compression_type="zstd")
    with pytest.raises(ks.UnsupportedCompressionError):
        ks.convert_records(zstd, to_magic=1)
    with pytest.raises(ks.UnsupportedCompressionError):
        ks.convert_records(messages(2), compression_type="zstd")


def test_damaged_batches_get_no_new_checksum() -> None:
    data = bytearray(messages(3))
    data[-1] ^= 1
    with pytest.raises(ks.ChecksumMismatchError):
        ks.convert_records(data, to_magic=2)


def test_unmapped_sources_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(random_log(random.Random(13), batches=30))
    for codec, magic in (("none", 2), ("lz4", 2), ("gzip", 1)):
        done = [
            ks.convert_records(
                ks.Source(path, memory_map=is_mapped), to_magic=magic, compression_type=codec
            ).data
            for is_mapped in (True, False)
        ]
        assert done[0] == done[1]
    keep = ks.rewrite.without_offsets(3, 9)
    dropped = [
        ks.filter_records(ks.Source(path, memory_map=is_mapped), keep=keep).data
        for is_mapped in (True, False)
    ]
    assert dropped[0] == dropped[1]
    stamped = ks.restamp(ks.Source(path, memory_map=False), last_offset=10**12)
    assert stamped.tobytes() == ks.restamp(path, last_offset=10**12).tobytes()
    found = [
        ks.validate_batches(ks.Source(path, memory_map=is_mapped), now_ms=T0)
        for is_mapped in (True, False)
    ]
    assert found[0] == found[1]
