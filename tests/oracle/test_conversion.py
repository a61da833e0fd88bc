"""Conversion of formats and codecs equals Kafka's, byte for byte without compression."""

from __future__ import annotations

import random

import pytest

import kafkascan as ks
from tests.oracle.rewrites import RefusedError, Rewrites
from tests.oracle.test_filtering import assert_same_content
from tests.support.log_corpus import GZIP, LZ4, NONE, SNAPPY, ZSTD, random_log
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

_ROUNDS = 200
_OLD_CODECS = (NONE, GZIP, SNAPPY, LZ4)


@pytest.mark.parametrize(("magics", "to_magic"), [((2,), 1), ((2,), 0), ((1,), 0), ((1, 2), 1)])
def test_down_conversion_of_plain_batches(
    magics: tuple[int, ...], to_magic: int, rewrites: Rewrites
) -> None:
    dice = random.Random(f"down {magics} {to_magic}")
    for _ in range(_ROUNDS):
        data = random_log(dice, magics=magics, codecs=(NONE,), batches=8)
        ours = ks.convert_records(data, to_magic=to_magic)
        assert ours.data == rewrites.down_convert(data, to_magic)


@pytest.mark.parametrize(("magics", "to_magic"), [((2,), 1), ((2,), 0), ((1,), 0)])
def test_down_conversion_of_compressed_batches(
    magics: tuple[int, ...], to_magic: int, rewrites: Rewrites
) -> None:
    dice = random.Random(f"down compressed {magics} {to_magic}")
    for _ in range(_ROUNDS):
        data = random_log(dice, magics=magics, codecs=_OLD_CODECS, batches=8)
        ours = ks.convert_records(data, to_magic=to_magic)
        assert_same_content(ours.data, rewrites.down_convert(data, to_magic))


def test_zstandard_is_not_carried_to_old_formats(rewrites: Rewrites) -> None:
    data = random_log(random.Random(7), magics=(2,), codecs=(ZSTD,), batches=8)
    with pytest.raises(RefusedError, match="zstandard"):
        rewrites.down_convert(data, 1)
    with pytest.raises(ks.UnsupportedCompressionError):
        ks.convert_records(data, to_magic=1)
    offsets = ks.read_records(data)["offset"].tolist()
    otherwise = ks.convert_records(data, to_magic=1, compression_type="gzip").data
    assert ks.read_records(otherwise)["offset"].tolist() == offsets


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_up_conversion_of_what_is_appended_at_once(
    magic: int, codec: str, rewrites: Rewrites
) -> None:
    dice = random.Random(f"up {magic} {codec}")
    for _ in range(_ROUNDS // 4):
        data = random_log(
            dice, magics=(magic,), codecs=(NONE,), batches=8, has_gaps=False, has_append_times=False
        )
        first = int(ks.scan_batches(data).batches["base_offset"][0])
        ours = ks.convert_records(data, to_magic=2, compression_type=codec, batch_size=1 << 30).data
        theirs = rewrites.up_convert(data, firstOffset=first, compressionType=codec)
        assert len(ks.scan_batches(ours)) == 1
        if codec == "none":
            assert ours == theirs
        assert_same_content(ours, theirs)


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_become_batches(magic: int, rewrites: Rewrites) -> None:
    dice = random.Random(f"wrappers {magic}")
    compared = 0
    while compared < _ROUNDS // 4:
        data = random_log(dice, magics=(magic,), codecs=_OLD_CODECS[1:], batches=1)
        if ks.scan_batches(data)["timestamp_type"][0] == ks.TimestampType.LOG_APPEND_TIME:
            continue
        first = int(ks.read_records(data)["offset"][0])
        ours = ks.convert_records(data, to_magic=2).data
        assert_same_content(ours, rewrites.up_convert(data, firstOffset=first))
        compared += 1


@pytest.mark.parametrize("codecs", [(NONE,), _OLD_CODECS])
def test_up_conversion_as_the_cleaner_does_it(codecs: tuple[int, ...], rewrites: Rewrites) -> None:
    """The cleaner also sets delete horizons, so there must be no tombstones."""
    dice = random.Random(f"cleaner {codecs}")
    compared = 0
    while compared < _ROUNDS // 2:
        data = random_log(dice, magics=(0, 1), codecs=codecs, batches=3)
        if None in ks.read_records(data, columns=["value"]).items("value"):
            continue
        ours = ks.convert_records(data, to_magic=2, batch_size=1).data
        theirs = rewrites.filter(data, [])
        if codecs == (NONE,):
            assert ours == theirs
        assert_same_content(ours, theirs)
        compared += 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_recompression(codec: str, rewrites: Rewrites) -> None:
    dice = random.Random(f"recompression {codec}")
    for _ in range(_ROUNDS // 4):
        count = dice.randrange(1, 20)
        records = [
            RecordV2(dice.randbytes(4), dice.randbytes(30), [(b"h", b"v")], at, 3 * at)
            for at in range(count)
        ]
        data = batch_of(records, max_timestamp=1_714_000_000_000 + 3 * (count - 1))
        data = ks.restamp(data, partition_leader_epoch=-1).tobytes()
        before = ks.convert_records(data, compression_type=dice.choice(["gzip", "lz4"])).data
        ours = ks.convert_records(before, compression_type=codec).data
        assert_same_content(ours, rewrites.up_convert(before, compressionType=codec))
        if codec == "none":
            assert ours == data
