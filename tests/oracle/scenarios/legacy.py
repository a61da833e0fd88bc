"""Scenarios of the last broker that writes message formats 0 and 1."""

from __future__ import annotations

import itertools

from tests.oracle.clients import Message
from tests.oracle.jvm import wait_until
from tests.oracle.stage import T0, Evidence, Stage, messages, scenario
from tests.support.kafka_dump import DumpedBatch

_LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")
_BOTH = ("java", "librdkafka")


def _all_codecs_in(evidence: Evidence, magic: int) -> bool:
    found = {(batch["magic"], batch["compressionType"]) for batch in evidence.batches}
    return found == {(magic, codec) for codec in _LEGACY_CODECS}


def _null_and_empty(evidence: Evidence) -> bool:
    texts = list(evidence.record_texts())
    wanted = ("keySize: -1 ", "keySize: 0 ", "valueSize: -1", "valueSize: 0")
    return all(any(words in f"{text} " for text in texts) for words in wanted)


@scenario(
    topics=["magic-0"],
    writers=_BOTH,
    promises={
        "magic 0 in every codec of its time": lambda e: _all_codecs_in(e, 0),
        "null and empty keys and values": _null_and_empty,
        "wrappers of several messages": lambda e: any(
            b["lastOffset"] > b["baseOffset"] for b in e.batches
        ),
    },
)
def magic_0(stage: Stage) -> None:
    """Message format 0: plain messages and compressed wrappers, null and empty keys and values."""
    stage.create_topic("magic-0", message_format_version="0.9.0")
    _write_in_all_codecs(stage, "magic-0")


@scenario(
    topics=["magic-1"],
    writers=_BOTH,
    promises={
        "magic 1 in every codec of its time": lambda e: _all_codecs_in(e, 1),
        "null and empty keys and values": _null_and_empty,
        "wrappers of several messages": lambda e: any(
            b["lastOffset"] > b["baseOffset"] for b in e.batches
        ),
        "CreateTime": lambda e: e.values("timestampType") == {"CreateTime"},
    },
)
def magic_1(stage: Stage) -> None:
    """Message format 1: plain messages and compressed wrappers, null and empty keys and values."""
    stage.create_topic("magic-1", message_format_version="0.10.0")
    _write_in_all_codecs(stage, "magic-1")


@scenario(
    topics=["magic-1-log-append-time"],
    writers=_BOTH,
    promises={
        "magic 1 in every codec of its time": lambda e: _all_codecs_in(e, 1),
        "LogAppendTime": lambda e: e.values("timestampType") == {"LogAppendTime"},
    },
)
def magic_1_log_append_time(stage: Stage) -> None:
    """Message format 1 with the broker's time."""
    stage.create_topic(
        "magic-1-log-append-time",
        message_format_version="0.10.0",
        message_timestamp_type="LogAppendTime",
    )
    _write_in_all_codecs(stage, "magic-1-log-append-time")


@scenario(
    topics=["magic-mixed"],
    writers=_BOTH,
    promises={
        "all three magics in one segment": lambda e: (
            len(e.dumps) == 1 and e.values("magic") == {0, 1, 2}
        ),
        "an older format behind a newer one": lambda e: any(
            later["magic"] < earlier["magic"] for earlier, later in itertools.pairwise(e.batches)
        ),
    },
)
def magic_mixed(stage: Stage) -> None:
    """One segment with all three message formats: the topic's format is changed between writes."""
    stage.create_topic("magic-mixed", message_format_version="0.9.0")
    for version in ("0.9.0", "0.10.0", "2.8", "0.10.0", "2.8"):
        stage.alter_topic("magic-mixed", message_format_version=version)
        for codec in ("none", "gzip"):
            for writer in (
                stage.java_producer(compression_type=codec),
                stage.librdkafka_producer(compression_type=codec),
            ):
                writer.write(messages("magic-mixed", 3))
                writer.close()


@scenario(
    topics=["magic-small-segments"],
    promises={
        "many segments": lambda e: len(e.dumps) >= 5,
        "index entries": lambda e: e.index_entries >= 20,
        "magic 0 and 1": lambda e: e.values("magic") == {0, 1},
    },
)
def magic_small_segments(stage: Stage) -> None:
    """Small segments of old messages with many index entries."""
    stage.create_topic(
        "magic-small-segments",
        message_format_version="0.9.0",
        segment_bytes="2048",
        index_interval_bytes="200",
    )
    for version in ("0.9.0", "0.10.0"):
        stage.alter_topic("magic-small-segments", message_format_version=version)
        plain = stage.java_producer()
        zipped = stage.java_producer(compression_type="lz4")
        for number in range(20):
            plain.write(messages("magic-small-segments", 3, start=3 * number, size=40))
            zipped.write(messages("magic-small-segments", 3, start=3 * number, size=40))
        plain.close()
        zipped.close()


@scenario(
    topics=["magic-1-compacted"],
    promises={
        "a wrapper with gaps": lambda e: any(
            batch.compression == "gzip" and _gaps(batch) for batch in _dumped(e)
        ),
        "gaps between plain messages": lambda e: any(
            later["compressionType"] == "none" and later["lastOffset"] > earlier["lastOffset"] + 1
            for earlier, later in itertools.pairwise(e.batches)
        ),
        "a tombstone": lambda e: any("valueSize: -1" in text for text in e.record_texts()),
        "nothing but magic 1": lambda e: e.values("magic") == {1},
    },
)
def magic_1_compacted(stage: Stage) -> None:
    """A compacted topic of old messages after the cleaner ran: gaps within wrappers."""
    topic = "magic-1-compacted"
    stage.create_topic(
        topic,
        message_format_version="0.10.0",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="86400000000",
        file_delete_delay_ms="0",
        segment_ms="10000",
    )
    zipped = stage.java_producer(compression_type="gzip")
    plain = stage.java_producer()
    zipped.write(_keyed("abcdefgh", b"partly overwritten"))
    plain.write(_keyed("ijklmn", b"partly overwritten"))
    zipped.write(_keyed("bdf", b"kept"))
    plain.write(_keyed("jln", b"kept") + _keyed("h", None))
    plain.write([Message(topic, b"last", b"roll", timestamp=T0 + 20_000)])
    zipped.close()
    plain.close()
    wait_until("the cleaner", lambda: stage.cleaned_up_to(topic) > 0)


def _keyed(keys: str, value: bytes | None) -> list[Message]:
    return [Message("magic-1-compacted", value, key.encode(), timestamp=T0) for key in keys]


def _dumped(evidence: Evidence) -> list[DumpedBatch]:
    return [batch for dump in evidence.dumps.values() for batch in dump.batches]


def _gaps(batch: DumpedBatch) -> bool:
    """Return whether the offsets inside a wrapper are not consecutive."""
    offsets = [record.offset for record in batch.records]
    return offsets != list(range(offsets[0], offsets[-1] + 1))


def _write_in_all_codecs(stage: Stage, topic: str) -> None:
    for codec in _LEGACY_CODECS:
        for writer in (
            stage.java_producer(compression_type=codec),
            stage.librdkafka_producer(compression_type=codec),
        ):
            writer.write(messages(topic, 1))
            writer.write(messages(topic, 5, start=1, size=60))
            writer.write(
                [
                    Message(topic, value, key, timestamp=T0 - 5)
                    for key in (None, b"", b"key")
                    for value in (None, b"", b"value")
                ]
            )
            writer.close()
