"""Scenarios of the log cleaner."""

from __future__ import annotations

import itertools

from tests.oracle.clients import Message
from tests.oracle.jvm import wait_until
from tests.oracle.stage import T0, Stage, scenario

_NEVER = str(2**62)


@scenario(
    topics=["compacted"],
    promises={
        "gaps within batches": lambda e: any(
            0 < batch["countOrNull"] < batch["lastOffset"] - batch["baseOffset"] + 1
            for batch in e.batches
        ),
        "gaps between batches": lambda e: any(
            later["baseOffset"] > earlier["nextOffset"]
            for earlier, later in itertools.pairwise(e.batches)
        ),
        "a tombstone in a batch with a delete horizon": lambda e: (
            any(batch["deleteHorizonMs"] and not batch["isControlBatch"] for batch in e.batches)
            and "valueSize: -1" in e.words("valueSize")
        ),
        "a control batch with a delete horizon": lambda e: any(
            batch["deleteHorizonMs"] and batch["isControlBatch"] for batch in e.batches
        ),
        "an empty batch that is retained": lambda e: any(
            batch["countOrNull"] == 0 and batch["baseTimestamp"] == -1 for batch in e.batches
        ),
        "a compressed batch with gaps": lambda e: any(
            batch["compressionType"] == "gzip"
            and batch["countOrNull"] < batch["lastOffset"] - batch["baseOffset"] + 1
            for batch in e.batches
        ),
    },
)
def compacted(stage: Stage) -> None:
    """A topic after the cleaner ran: gaps, tombstones, delete horizons, empty retained batches."""
    stage.create_topic(
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="86400000000",
        file_delete_delay_ms="0",
        segment_ms=_NEVER,
    )
    _write_keys_again_and_again(stage)
    # The segment rolls by the time in the records; the last segment is never cleaned.
    stage.alter_topic("compacted", segment_ms="10000")
    # A marker gets its delete horizon in the first round without data of its transaction.
    for number in (1, 2):
        _roll_and_wait_for_the_cleaner(stage, number)


def _roll_and_wait_for_the_cleaner(stage: Stage, number: int) -> None:
    before = stage.cleaned_up_to("compacted")
    plain = stage.java_producer()
    last = Message("compacted", b"last", b"roll-%d" % number, timestamp=T0 + 20_000 * number)
    plain.write([last])
    plain.close()
    wait_until("the cleaner", lambda: stage.cleaned_up_to("compacted") > before)


def _write_keys_again_and_again(stage: Stage) -> None:
    idle = stage.java_producer(enable_idempotence="true")
    busy = stage.java_producer(enable_idempotence="true")
    zipped = stage.java_producer(compression_type="gzip")
    transactional = stage.java_producer(transactional_id="compacted")
    busy.write(_keyed("abc", "gone: the whole batch is overwritten below"))
    idle.write(_keyed("abcdefghij", "gone, but the batch stays: it is its producer's last one"))
    zipped.write(_keyed("klmnopqr", "partly overwritten"))
    busy.write(_keyed("abcde", "kept"))
    transactional.begin()
    transactional.write(_keyed("stuv", "aborted"))
    transactional.abort()
    transactional.begin()
    transactional.write(_keyed("stuv", "committed, partly overwritten"))
    transactional.commit()
    busy.write(_keyed("fg", None) + _keyed("hijklu", "kept"))
    zipped.write(_keyed("nv", "kept") + _keyed("q", None))
    for writer in (idle, busy, zipped, transactional):
        writer.close()


def _keyed(keys: str, value: str | None) -> list[Message]:
    data = None if value is None else value.encode()
    return [Message("compacted", data, key.encode(), timestamp=T0) for key in keys]
