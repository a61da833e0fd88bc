"""Trials of other codecs on samples of a log."""

from __future__ import annotations

import pytest

import kafkascan as ks
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import batch_v2

DATA = GOLDEN / "kafka-4.4.0" / "data"


def test_known_sizes() -> None:
    """Records that compress well and badly: the sizes equal the sizes of built batches."""
    log = b"".join(batch_of([RecordV2(value=b"word " * 200)], base_offset=row) for row in range(30))
    (group,) = ks.advise(log, choices=["none", "gzip:9", "zstd"], sample=10).groups
    none, gzip, zstd = group.trials
    assert (group.total_batches, group.total_bytes) == (30, len(log))
    assert (none.batches, none.stored_bytes, none.compressed_bytes) == (
        10,
        len(log) // 3,
    ) * 1 + (len(log) // 3,)
    assert (none.ratio, none.saving, none.compress_mb_per_s) == (1.0, 0.0, None)
    expected = [
        ks.build_batches(
            {"value": [b"word " * 200], "timestamp": [1_714_000_000_000]},
            compression_type=codec, compression_level=level,
        )
        for codec, level in (("gzip", 9), ("zstd", None))
    ]  # fmt: skip
    assert [gzip.compressed_bytes, zstd.compressed_bytes] == [10 * len(one) for one in expected]
    assert gzip.ratio > 5
    assert group.smallest in (gzip, zstd)


def test_savings_are_relative_to_the_stored_size() -> None:
    """Compressed batches are decompressed first."""
    found = ks.advise(DATA / "codecs-java-0", choices=["none", "zstd"])
    (group,) = found.groups
    none, zstd = group.trials
    assert none.records_bytes == zstd.records_bytes > zstd.compressed_bytes
    assert none.saving < 0 < zstd.saving
    assert set(group.stored_codecs) == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_by_producer_and_the_same_sample_again() -> None:
    by_topic = ks.advise(DATA, choices=["lz4"])
    topics = [group.topic for group in by_topic.groups]
    assert len(topics) == len(set(topics)) > 5
    assert [g.total_bytes for g in by_topic.groups] == sorted(
        (g.total_bytes for g in by_topic.groups), reverse=True
    )
    by_producer = ks.advise(DATA / "transactions-0", by="producer", choices=["lz4"])
    assert len({group.producer_id for group in by_producer.groups}) > 2
    again = [ks.advise(DATA, choices=["lz4"], sample=3, seed=5) for _ in range(2)]
    one, other = ([t.compressed_bytes for g in a.groups for t in g.trials] for a in again)
    assert one == other
    assert by_topic.to_arrow().num_rows == len(by_topic.groups)


def test_unreadable_batches_are_counted() -> None:
    log = batch_v2(b"nonsense", attributes=2) + batch_v2(b"nonsense", base_offset=1, attributes=7)
    (group,) = ks.advise(log).groups
    assert (group.unreadable, group.trials) == (2, [])
    assert ks.advise(b"").groups == []


def test_damage_ends_a_segment() -> None:
    log = batch_v2(b"payload") + b"\xff" * 80
    found = ks.advise(log, choices=["gzip"])
    assert found.groups[0].total_batches == 1
    assert "BAD_LENGTH" in found.damage[0]


@pytest.mark.parametrize("choice", ["brotli", "zstd:99", "snappy:1", "gzip:x", ""])
def test_unknown_codecs(choice: str) -> None:
    with pytest.raises(ValueError, match=f"'{choice}'"):
        ks.advise(b"", choices=[choice])


def test_arguments() -> None:
    with pytest.raises(ValueError, match="by must"):
        ks.advise(b"", by="batch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample"):
        ks.advise(b"", sample=0)
