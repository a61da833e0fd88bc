"""Scenarios of records: codecs, nulls, headers, timestamps."""

from __future__ import annotations

import itertools

from tests.oracle.clients import Message, Writer
from tests.oracle.stage import T0, Evidence, Stage, messages, scenario

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BOTH = ("java", "librdkafka")
_NEVER = str(2**62)


def _holds_each_codec_small_and_large(evidence: Evidence) -> bool:
    counts = {(batch["compressionType"], batch["countOrNull"]) for batch in evidence.batches}
    return counts >= {(codec, count) for codec in _CODECS for count in (1, 3, 300)}


@scenario(
    topics=["codecs-java"],
    promises={"batches of 1, 3 and 300 records in each codec": _holds_each_codec_small_and_large},
)
def codecs_java(stage: Stage) -> None:
    """Small and large batches in each of the five codecs, from the Java producer."""
    stage.create_topic("codecs-java")
    for codec in _CODECS:
        _write_small_and_large("codecs-java", stage.java_producer(compression_type=codec))


@scenario(
    topics=["codecs-librdkafka"],
    writers=["librdkafka"],
    promises={"batches of 1, 3 and 300 records in each codec": _holds_each_codec_small_and_large},
)
def codecs_librdkafka(stage: Stage) -> None:
    """Small and large batches in each of the five codecs, from librdkafka."""
    stage.create_topic("codecs-librdkafka")
    for codec in _CODECS:
        _write_small_and_large(
            "codecs-librdkafka", stage.librdkafka_producer(compression_type=codec)
        )


def _write_small_and_large(topic: str, writer: Writer) -> None:
    # Large enough to shrink: librdkafka sends incompressible batches uncompressed.
    writer.write(messages(topic, 1, size=800))
    writer.write(messages(topic, 3, start=1, size=300))
    writer.write(messages(topic, 300, start=4, size=100))
    writer.close()


@scenario(
    topics=["nulls-and-empties"],
    writers=_BOTH,
    promises={
        "a null and an empty key": lambda e: {"keySize: -1", "keySize: 0"} <= e.words("keySize"),
        "a null and an empty value": lambda e: (
            {"valueSize: -1", "valueSize: 0"} <= e.words("valueSize")
        ),
    },
)
def nulls_and_empties(stage: Stage) -> None:
    """Null, empty and ordinary keys with null, empty and ordinary values, plain and compressed."""
    stage.create_topic("nulls-and-empties")
    for writer in (
        stage.java_producer(),
        stage.java_producer(compression_type="gzip"),
        stage.librdkafka_producer(),
    ):
        writer.write(
            [
                Message("nulls-and-empties", value, key, timestamp=T0)
                for key in (None, b"", b"key")
                for value in (None, b"", b"value")
            ]
        )
        writer.close()


_HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("one", b"1"),),
    tuple((f"header-{number}", f"value {number}".encode()) for number in range(150)),
    (("twice", b"first"), ("twice", b"second"), ("twice", b"first")),
    (("null", None), ("empty", b""), ("", b"empty key")),
    (("schlüssel", b"\xff\x00"), ("ключ", b""), ("鍵", None), ("🔑", b"x")),
)


@scenario(
    topics=["headers"],
    writers=_BOTH,
    promises={
        "a record without headers": lambda e: any(
            "headerKeys: []" in text for text in e.record_texts()
        ),
        "a record with 150 headers": lambda e: any(
            "header-149" in text for text in e.record_texts()
        ),
        "duplicate keys": lambda e: any("[twice,twice,twice]" in text for text in e.record_texts()),
        "null and empty values, an empty key": lambda e: any(
            "[null,empty,]" in text for text in e.record_texts()
        ),
        "keys of 2, 3 and 4 byte characters": lambda e: any(
            "[schlüssel,ключ,鍵,🔑]" in text for text in e.record_texts()
        ),
    },
)
def headers(stage: Stage) -> None:
    """Record headers: none, many, duplicate keys, null and empty values, keys beyond ASCII."""
    stage.create_topic("headers")
    for writer in (
        stage.java_producer(),
        stage.librdkafka_producer(),
        stage.java_producer(compression_type="zstd"),
    ):
        writer.write(
            [
                Message("headers", b"value %d" % number, timestamp=T0 + number, headers=these)
                for number, these in enumerate(_HEADERS)
            ]
        )
        writer.close()


@scenario(
    topics=["timestamps"],
    writers=_BOTH,
    promises={
        "a batch that is older than its predecessor": lambda e: any(
            later["maxTimestamp"] < earlier["maxTimestamp"]
            for earlier, later in itertools.pairwise(e.batches)
        ),
        "a batch that starts at its maximum": lambda e: any(
            batch["countOrNull"] > 1 and batch["baseTimestamp"] == batch["maxTimestamp"]
            for batch in e.batches
        ),
        "the year 5138 and time 0": lambda e: {0, 99_999_999_999_999} <= e.values("maxTimestamp"),
    },
)
def timestamps(stage: Stage) -> None:
    """Timestamps in order, out of order within and across batches, at 0, in the far future."""
    stage.create_topic("timestamps", segment_ms=_NEVER)
    for writer in (stage.java_producer(), stage.librdkafka_producer()):
        for times in ([0, 1, 2], [5, 3, 4], [-60_000, -50_000, -70_000], [3, 2, 1], [10**9]):
            writer.write([Message("timestamps", b"v", timestamp=T0 + time) for time in times])
        for time in (0, 99_999_999_999_999):
            writer.write([Message("timestamps", b"v", timestamp=time)])
        writer.close()


@scenario(
    topics=["log-append-time"],
    writers=_BOTH,
    promises={
        "LogAppendTime in every batch": lambda e: e.values("timestampType") == {"LogAppendTime"},
        "plain and compressed": lambda e: {"none", "gzip", "zstd"} <= e.values("compressionType"),
        "the producer's time kept as base timestamp": lambda e: T0 in e.values("baseTimestamp"),
    },
)
def log_append_time(stage: Stage) -> None:
    """A topic whose records have the broker's time."""
    stage.create_topic("log-append-time", message_timestamp_type="LogAppendTime")
    for codec in ("none", "gzip", "zstd"):
        for writer in (
            stage.java_producer(compression_type=codec),
            stage.librdkafka_producer(compression_type=codec),
        ):
            writer.write(messages("log-append-time", 3))
            writer.close()
