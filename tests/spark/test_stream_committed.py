"""Streams with read_committed: each record is returned once, after its transaction ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

import kafkascan as ks
from tests.spark.logs import ABORT, COMMIT, data, marker, plain_batch, segment_path
from tests.spark.test_stream import KNOWS_LIMITS, Follower, append
from tests.support.transactional_logs import TransactionalLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def follower(folder: Path, start: dict[str, object] | None = None, **options: object) -> Follower:
    return Follower(folder, start, isolationLevel="read_committed", **options)


def offsets(stream: Follower) -> list[int]:
    return [offset for _, _, offset in stream.read()]


def test_an_open_transaction_waits(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0, 1), data(1, 7), plain_batch(2, 1))
    stream = follower(tmp_path)
    assert offsets(stream) == [0]
    assert stream.at == {"a": {"0": 1}}, "the last stable offset, as a broker has it"
    append(path, data(3, 8), marker(4, 7, COMMIT))
    assert offsets(stream) == [1, 2]
    append(path, data(5, 7), marker(6, 8, ABORT))
    assert offsets(stream) == [], "3 was aborted, 4 is a marker"
    assert stream.at == {"a": {"0": 5}}
    append(segment_path(tmp_path, "a", base_offset=7), data(7, 7), marker(8, 7, COMMIT))
    assert offsets(stream) == [5, 7]
    assert stream.at == {"a": {"0": 9}}


def test_an_incomplete_marker_has_no_effect(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    ending = marker(1, 7, COMMIT)
    append(path, data(0, 7), ending[:-3])
    stream = follower(tmp_path)
    assert offsets(stream) == []
    append(path, b"\x01\x02\x03")
    assert offsets(stream) == [], "its checksum is not right yet"
    with path.open("r+b") as file:
        file.seek(-3, 2)
        file.write(ending[-3:])
    assert offsets(stream) == [0]


def test_starting_offsets(tmp_path: Path) -> None:
    append(segment_path(tmp_path, "a"), plain_batch(0, 2), data(2, 7), plain_batch(3, 2))
    assert follower(tmp_path, startingOffsets="latest").at == {"a": {"0": 2}}
    late = follower(tmp_path, startingOffsets=None, startingTimestamp=1_714_000_000_004)
    assert late.at == {"a": {"0": 2}}, "a broker gives read_committed consumers no later offset"
    ahead = follower(tmp_path, startingOffsets='{"a":{"0":4}}')
    assert offsets(ahead) == [], "it waits, nothing is lost"
    assert ahead.at == ahead.reader.latestOffset() == {"a": {"0": 4}}
    append(segment_path(tmp_path, "a"), marker(5, 7, COMMIT))
    assert offsets(ahead) == [4]


def test_a_batch_that_was_planned_is_the_same_later(tmp_path: Path) -> None:
    """After a restart, when the log has grown and its first segment was deleted."""
    append(segment_path(tmp_path, "a"), plain_batch(0, 1), data(1, 7))
    append(segment_path(tmp_path, "a", base_offset=2), data(2, 7), plain_batch(3, 1))
    append(segment_path(tmp_path, "a", base_offset=2), marker(4, 7, ABORT), data(5, 7))
    start, end = {"a": {"0": 2}}, {"a": {"0": 5}}
    found = follower(tmp_path, start).between(start, end)
    assert found == [("a", 0, 3)]
    append(segment_path(tmp_path, "a", base_offset=2), marker(6, 7, COMMIT))
    segment_path(tmp_path, "a").unlink()
    assert follower(tmp_path, start).between(start, end) == found
    stream = follower(tmp_path, end)
    assert offsets(stream) == [5]


def test_a_batch_that_was_planned_without_it(tmp_path: Path) -> None:
    """A checkpoint of a stream that read uncommitted records is an error."""
    append(segment_path(tmp_path, "a"), plain_batch(0, 1), data(1, 7))
    with pytest.raises(ValueError, match=r"a-0 is only stable up to 1, not to 2"):
        follower(tmp_path).between({"a": {"0": 0}}, {"a": {"0": 2}})


def test_damage_raises_in_every_mode(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    ending = bytearray(marker(1, 7, COMMIT))
    ending[-1] ^= 1
    append(path, data(0, 7), bytes(ending), plain_batch(2, 1))
    for mode in ("FAILFAST", "PERMISSIVE"):
        with pytest.raises(ks.ChecksumMismatchError, match="position"):
            follower(tmp_path, mode=mode).read()


def test_a_recreated_topic(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, data(0, 7), data(1, 7), plain_batch(2, 1))
    stream = follower(tmp_path, failOnDataLoss="false")
    assert offsets(stream) == []
    path.write_bytes(b"".join(plain_batch(n, 1, 200) for n in range(5)))
    assert offsets(stream) == [0, 1, 2, 3, 4]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["plain", "data", "data", "commit", "abort", "roll", "read", "restart"]
            ),
            st.integers(1, 3),
        ),
        max_size=40,
    ),
    limit=st.sampled_from([None, 1, 3]),
)
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], limit: int | None
) -> None:
    """After every read, the stream has returned what a consumer has seen."""
    folder = tmp_path_factory.mktemp("log")
    limits = {"maxOffsetsPerTrigger": limit} if limit is not None and KNOWS_LIMITS else {}
    log = TransactionalLog(folder, "a")
    stream, found = follower(folder, **limits), []
    for step, producer in [*steps, ("read", 0)]:
        if step == "restart":
            stream = follower(folder, stream.at, **limits)
        elif step == "read":
            before = None
            while stream.at != before:
                before = stream.at
                found += offsets(stream)
            assert found == log.moments[-1]
        else:
            log.write([(step, producer)])


def test_spark_restarts_from_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    logs, out, checkpoint = (str(tmp_path / name) for name in ("logs", "out", "checkpoint"))
    path = segment_path(tmp_path / "logs", "a")

    def run() -> list[int]:
        query = (
            spark.readStream.format("kafkascan")
            .options(startingOffsets="earliest", isolationLevel="read_committed")
            .load(logs)
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(120)
        found = spark.read.schema("offset long").parquet(out).collect()
        return sorted(row.offset for row in found)

    append(path, plain_batch(0, 2), data(2, 7), plain_batch(3, 1), data(4, 8))
    assert run() == [0, 1]
    append(path, marker(5, 7, ABORT), plain_batch(6, 1))
    assert run() == [0, 1, 3]
    append(path, marker(7, 8, COMMIT))
    assert run() == [0, 1, 3, 4, 6]
