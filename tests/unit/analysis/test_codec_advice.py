"""Trials of other codecs on samples of a log."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Literal

import pytest

import kafkascan as ks
from tests.support.logs import COMMIT, marker
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import batch_v2, message_v1

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


@pytest.mark.parametrize("by", ["topic", "producer"])
def test_batches_belong_to_their_topic_and_are_read_from_their_segment(
    tmp_path: Path, by: Literal["topic", "producer"]
) -> None:
    """Segments are read together. Bytes from the wrong position would be no gzip stream."""
    stored = {}
    for topic, size in (("one", 10), ("other", 5000)):
        (tmp_path / f"{topic}-0").mkdir()
        batches = [
            ks.build_batches(
                {"offset": [offset], "value": [random.Random(offset).randbytes(size + offset)]},
                compression_type="gzip",
            )
            for offset in range(4)
        ]
        for first in (0, 2):
            path = tmp_path / f"{topic}-0" / f"{first:020}.log"
            path.write_bytes(b"".join(batches[first : first + 2]))
        stored[topic] = sum(map(len, batches))
    found = ks.advise(tmp_path, by=by, choices=["none"])
    assert [(one.topic, one.total_batches, one.total_bytes) for one in found.groups] == [
        ("other", 4, stored["other"]),
        ("one", 4, stored["one"]),
    ]
    other, one = found.groups
    assert (other.unreadable, one.unreadable) == (0, 0)
    # Around a value, a record has a length, attributes, two deltas, the sizes of key and value,
    # and a number of headers. Length and size take two bytes each if the value is large.
    assert [trial.records_bytes for trial in other.trials] == [4 * 9 + 4 * 5000 + 6]
    assert [trial.records_bytes for trial in one.trials] == [4 * 7 + 4 * 10 + 6]


def test_control_batches_and_old_formats_are_not_sampled() -> None:
    data = batch_of([RecordV2()])
    log = message_v1() + data + marker(COMMIT, base_offset=1)
    found = ks.advise(log, choices=["none"])
    (group,) = found.groups
    assert (found.skipped_batches, group.total_batches, group.total_bytes) == (1, 1, len(data))
    assert group.stored_codecs == {"none": 1}


def test_batches_without_records_are_counted_but_not_sampled() -> None:
    """The cleaner leaves such batches."""
    (group,) = ks.advise(
        batch_v2(records_count=0) + batch_of([RecordV2()]), choices=["none"]
    ).groups
    assert (group.total_batches, group.trials[0].batches, group.unreadable) == (2, 1, 0)


def test_overlapping_segments_are_counted_once_and_reported(tmp_path: Path) -> None:
    batches = [batch_of([RecordV2()], base_offset=offset) for offset in range(3)]
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{1:020}.log").write_bytes(batches[1])
    found = ks.advise(tmp_path, choices=["none"])
    assert found.groups[0].total_batches == 3
    assert [one.symbol for one in found.problems] == ["OFFSET_OVERLAP"]


def test_a_segment_that_cannot_be_opened_is_not_damaged_but_unread(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(batch_of([RecordV2()]))
    (tmp_path / f"{1:020}.log").symlink_to("nowhere")
    found = ks.advise(tmp_path, choices=["none"])
    (problem,) = found.problems
    assert problem.symbol == "UNREADABLE"
    assert f"{1:020}.log" in problem.path
    assert found.groups[0].total_batches == 1


def test_a_sample_is_drawn_from_all_segments(tmp_path: Path) -> None:
    """Seeds find every pair of four batches; two segments with one batch each are read last."""
    offset, sizes = 0, []
    for values in ((1, 2), (4,), (8,)):
        batches = [batch_of([RecordV2(value=bytes(one))], base_offset=offset) for one in values]
        (tmp_path / f"{offset:020}.log").write_bytes(b"".join(batches))
        sizes += map(len, batches)
        offset += len(values)
    stored = {
        ks.advise(tmp_path, choices=["none"], sample=2, seed=seed).groups[0].trials[0].stored_bytes
        for seed in range(60)
    }
    assert stored == {one + other for one, other in itertools.combinations(sizes, 2)}


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


def test_many_groups_have_smaller_samples(tmp_path: Path) -> None:
    """The first batches of the sample are the same, and the note is none for the exit code."""
    for topic in range(51):
        folder = tmp_path / f"topic-{topic}-0"
        folder.mkdir()
        batches = (batch_v2(b"p" * row, base_offset=row, records_count=1) for row in range(110))
        (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    found = ks.advise(tmp_path, choices=["none"])
    assert {group.trials[0].batches for group in found.groups} == {98}
    assert found.problems.to_columns()["symbol"] == ["SMALL_SAMPLE"]
    assert "98 batches of each topic are sampled, of which there are 51" in str(
        next(iter(found.problems))
    )
    given = ks.advise(tmp_path, choices=["none"], sample=98)
    assert given.to_columns() == found.to_columns()
    assert given.is_complete
    assert not given.problems
    fewer = ks.advise(tmp_path / "topic-0-0", choices=["none"])
    assert fewer.groups[0].trials[0].batches == 100


def test_unreadable_batches_are_counted() -> None:
    log = batch_v2(b"nonsense", attributes=2) + batch_v2(b"nonsense", base_offset=1, attributes=7)
    (group,) = ks.advise(log).groups
    assert (group.unreadable, group.trials) == (2, [])
    assert ks.advise(b"").groups == []


def test_damage_ends_a_segment() -> None:
    log = batch_v2(b"payload") + b"\xff" * 80
    found = ks.advise(log, choices=["gzip"])
    assert found.groups[0].total_batches == 1
    assert "BAD_LENGTH" in found.problems["symbol"]


@pytest.mark.parametrize("choice", ["brotli", "zstd:99", "snappy:1", "gzip:x", ""])
def test_unknown_codecs(choice: str) -> None:
    with pytest.raises(ValueError, match=f"'{choice}'"):
        ks.advise(b"", choices=[choice])


def test_arguments() -> None:
    with pytest.raises(ValueError, match="by must"):
        ks.advise(b"", by="batch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample"):
        ks.advise(b"", sample=0)
