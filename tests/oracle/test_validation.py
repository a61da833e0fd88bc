"""Validation finds what a broker refuses, under Kafka's names, and nothing that it accepts."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkascan as ks
from tests.oracle.rewrites import RefusedError, Rewrites
from tests.support.log_corpus import (
    GZIP,
    NONE,
    ZSTD,
    compress,
    marker,
    random_batch_v2,
    random_log,
    random_message,
    random_wrapper,
)
from tests.support.segments import T0, V2_FIELDS, message_v0, message_v1, sign

pytestmark = pytest.mark.oracle

_ROUNDS = 700
_ORIGINS = ["client", "client", "client", "coordinator", "replication", "raft_leader"]

Dice = random.Random


def _sound_v2(dice: Dice) -> bytes:
    """Return a batch as a producer sends it: consecutive offsets from 0."""
    while True:
        data, _ = random_batch_v2(dice, 0, dice.randrange(5))
        (row,) = ks.scan_batches(data).batches
        if row["records_count"] == row["last_offset_delta"] + 1:
            return data


def _other_field(dice: Dice) -> bytes:
    data = bytearray(_sound_v2(dice))
    name = dice.choice(
        ["base_offset", "last_offset_delta", "records_count", "base_sequence", "producer_id",
         "attributes", "crc", "max_timestamp", "partition_leader_epoch"]
    )  # fmt: skip
    at, code = V2_FIELDS[name]
    (old,) = struct.unpack_from(">" + code, data, at)
    new = dice.choice([0, 1, 7]) if code == "I" else dice.choice([-1, 0, 1, 5, old + 1, old - 1])
    if name == "attributes":
        new = old ^ dice.choice([0x08, 0x10, 0x20, 0x01, 0x04, 0x80])
    struct.pack_into(">" + code, data, at, new)
    if name != "crc":
        sign(data)
    return bytes(data)


def _marker(dice: Dice) -> bytes:
    return marker(0, "COMMIT", 5)


def _several(dice: Dice) -> bytes:
    magics = dice.choice([(0,), (1,), (2,), (0, 1), (1, 2)])
    return random_log(dice, magics=magics, codecs=dice.choice([(NONE,), (NONE, GZIP)]), batches=3)


def _old(dice: Dice) -> bytes:
    magic = dice.randrange(2)
    if dice.random() < 0.3:
        return b"".join(random_message(dice, magic, at) for at in range(dice.randrange(1, 5)))
    return random_wrapper(dice, magic, 0, dice.choice([1, 2, 3]))[0]


def _odd_wrapper(dice: Dice) -> bytes:
    """Return a compressed message with invalid content."""
    magic = dice.randrange(2)
    message = (message_v0, message_v1)[magic]
    inner = [bytearray(message(b"k", b"v", offset=at)) for at in range(3)]
    odd, codec = dice.choice(["crc", "magic", "compressed", "none", "null", "zstd"]), GZIP
    if odd == "crc":
        inner[dice.randrange(3)][-1] ^= 1
    elif odd == "magic":
        inner[dice.randrange(3)] = bytearray((message_v1, message_v0)[magic](b"k", b"v"))
    elif odd == "compressed":
        inner[2] = bytearray(message(b"k", compress(GZIP, magic, b""), offset=2, attributes=GZIP))
    elif odd == "none":
        inner = []
    elif odd == "zstd":
        codec = ZSTD
    value = compress(codec, magic, b"".join(inner)) if odd != "null" else None
    return message(None, value, offset=2, attributes=codec)


def _cut(dice: Dice) -> bytes:
    data = _sound_v2(dice)
    return data + data[: dice.randrange(61)]


_KINDS: list[Callable[[Dice], bytes]] = [
    _sound_v2, _other_field, _other_field, _marker, _several, _old, _odd_wrapper, _cut
]  # fmt: skip


def _cases() -> Iterator[tuple[str, bytes, dict[str, Any], dict[str, Any]]]:
    """Bytes to append, with the arguments for kafkascan and for the oracle."""
    dice = random.Random("validation")
    for _ in range(_ROUNDS):
        kind = dice.choice(_KINDS)
        data = kind(dice)
        options: dict[str, Any] = {
            "origin": dice.choice(_ORIGINS),
            "compacted": dice.random() < 0.3,
            "timestamp_type": ks.TimestampType(int(dice.random() < 0.2)),
            "timestamp_before_max_ms": dice.choice([2**63 - 1, 3_600_000, 20_000]),
            "timestamp_after_max_ms": dice.choice([3_600_000, 1000]),
            "now_ms": T0 + dice.choice([0, 5000, 90_000_000]),
            # Messages of old formats grow when they are converted.
            "max_message_bytes": dice.choice([1_048_588, 150 if data[16] == 2 else 1_048_588]),
            "leader_epoch": dice.choice([0, 7]),
        }
        config = {
            "cleanup.policy": "compact" if options["compacted"] else "delete",
            "message.timestamp.type": options["timestamp_type"].display_name,
            "message.timestamp.before.max.ms": options["timestamp_before_max_ms"],
            "message.timestamp.after.max.ms": options["timestamp_after_max_ms"],
            "max.message.bytes": options["max_message_bytes"],
        }
        epoch = options["leader_epoch"]
        theirs = {"config": config, "now": options["now_ms"], "leaderEpoch": epoch}
        yield kind.__name__, data, options, theirs


def _verdict_of_kafka(rewrites: Rewrites, data: bytes, origin: str, options: Any) -> str:
    try:
        rewrites.append(data, origin.upper(), **options)
    except RefusedError as refused:
        if refused.kind == "RecordValidationException":
            assert refused.cause is not None
            return str(refused.cause["class"]).rpartition(".")[2]
        if origin in ("coordinator", "replication") and _is_refused_later(refused):
            return "taken"
        return refused.kind
    return "taken"


def _is_refused_later(refused: RefusedError) -> bool:
    """Cases outside of the validator: producer state, and Kafka's own errors with batches
    that its coordinators never write.
    """
    return refused.kind == "UnsupportedOperationException" or any(
        text in refused.message for text in _LATER
    )


_LATER = ("startOffset=-1", "invalid record count -1 in magic v2")


def test_verdicts_are_kafkas(rewrites: Rewrites) -> None:
    verdicts: Counter[str] = Counter()
    wrong = []
    for kind, data, options, theirs in _cases():
        kafka = _verdict_of_kafka(rewrites, data, options["origin"], theirs)
        found = ks.validate_batches(data, as_append=True, **options)
        ours = next((one.exception for one in found if one.severity == "error"), "taken")
        verdicts[kafka] += 1
        if ours != kafka:
            wrong.append(f"{kind} {data.hex()} {options}: Kafka {kafka}, we {ours}: {found[:2]}")
    assert wrong == []
    assert verdicts["taken"] > 100
    assert len(verdicts) > 6, verdicts
