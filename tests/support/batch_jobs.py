"""Batches described as data: random ones by seed, and `BatchBuilder`'s result for each."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import kafkascan as ks
from kafkascan.records.control import ControlRecordType

T0 = 1_714_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_INT = 2**31 - 1
Headers = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class Step:
    """A record to append; `offset=None` takes the next offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)
    offset: int | None = None


@dataclass(frozen=True)
class Control:
    """A control record to append."""

    timestamp: int
    kind: ControlRecordType
    value: dict[str, Any]


@dataclass(frozen=True)
class BatchJob:
    """The arguments of a builder, and the records that are appended."""

    magic: int = 2
    codec: str = "none"
    level: int | None = None
    log_append_time: int | None = None
    base_offset: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    partition_leader_epoch: int = -1
    delete_horizon_ms: int | None = None
    write_limit: int = MAX_INT
    ratio: float = 1.0
    last_offset: int | None = None
    steps: tuple[Step | Control, ...] = ()


@dataclass
class BuiltHere:
    """The batch that `BatchBuilder` returned for a job, or the error that it raised."""

    data: bytes | None = None
    error: ValueError | None = None
    info: tuple[int, int] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)


def build_here(job: BatchJob) -> BuiltHere:
    """Build a job with `BatchBuilder`; record its properties after each step."""
    built = BuiltHere()
    try:
        builder = builder_of(job)
        for step in job.steps:
            built.steps.append(_take(builder, step))
        if job.last_offset is not None:
            builder.override_last_offset(job.last_offset)
        built.info = tuple(builder.info) if len(builder) else None
        built.data = builder.build()
    except ValueError as error:
        built.error = error
    return built


def builder_of(job: BatchJob) -> ks.BatchBuilder:
    """Return an empty builder with the arguments of a job."""
    is_stamped = job.log_append_time is not None
    return ks.BatchBuilder(
        magic=job.magic,
        compression_type=job.codec,
        compression_level=job.level,
        timestamp_type=ks.TimestampType.LOG_APPEND_TIME if is_stamped else 0,
        log_append_time=-1 if job.log_append_time is None else job.log_append_time,
        base_offset=job.base_offset,
        producer_id=job.producer_id,
        producer_epoch=job.producer_epoch,
        base_sequence=job.base_sequence,
        is_transactional=job.is_transactional,
        is_control=job.is_control,
        partition_leader_epoch=job.partition_leader_epoch,
        delete_horizon_ms=job.delete_horizon_ms,
        write_limit=job.write_limit,
        estimated_compression_ratio=job.ratio,
    )


def _take(builder: ks.BatchBuilder, step: Step | Control) -> dict[str, Any]:
    state: dict[str, Any] = {}
    if isinstance(step, Control):
        builder.append_control_record(step.timestamp, step.kind, step.value)
    else:
        state["hasRoom"] = builder.has_room_for(step.timestamp, step.key, step.value, step.headers)
        builder.append(step.timestamp, step.key, step.value, step.headers, offset=step.offset)
    state["isFull"] = builder.is_full
    state["estimatedSize"] = builder.estimated_size
    state["uncompressedSize"] = builder.uncompressed_size
    return state


# ---- random jobs -------------------------------------------------------------------------


def random_job(seed: object, *, is_sound: bool = False) -> BatchJob:
    """
    Return a job that depends on the seed alone.

    With `is_sound`, the builder accepts every step.
    """
    choice = random.Random(repr(seed))
    magic = choice.choice((0, 1, 2, 2, 2))
    if magic == 2 and choice.random() < 0.15:
        return _control_job(choice)
    fields = _random_fields(choice, magic)
    if not is_sound and choice.random() < 0.15:
        fields |= choice.choice(_WRONG_FIELDS)
    base_offset = int(fields["base_offset"])
    steps = _random_steps(choice, magic, base_offset)
    if not is_sound and choice.random() < 0.1:
        steps[choice.randrange(len(steps))] = _wrong_step(choice, base_offset)
    return BatchJob(steps=tuple(steps), **fields)


_WRONG_FIELDS: tuple[dict[str, Any], ...] = (
    {"is_transactional": True, "producer_id": -1},
    {"producer_id": 5, "producer_epoch": -1},
    {"producer_id": 5, "producer_epoch": 1, "base_sequence": -1},
    {"codec": "zstd", "level": 23},
    {"codec": "gzip", "level": 0},
    {"codec": "lz4", "level": 18},
    {"is_control": True},
    {"magic": 1, "delete_horizon_ms": T0},
    {"magic": 0, "codec": "zstd", "level": None},
    {"magic": 1, "producer_id": 5, "producer_epoch": 1, "base_sequence": 1},
)


def _wrong_step(choice: random.Random, base_offset: int) -> Step:
    return choice.choice(
        (
            Step(-2, b"k", b"v"),
            # Kafka's builder accepts negative offsets, which no log contains; ours does not.
            Step(T0, b"k", b"v", offset=max(0, base_offset - 3)),
            Step(T0, b"k", b"v", offset=base_offset + 2**31 + 7),
            Step(T0, b"k", b"v", [(b"h", b"x")]),
        )
    )


def _random_fields(choice: random.Random, magic: int) -> dict[str, Any]:
    codec = choice.choice(CODECS if magic == 2 else CODECS[:-1])
    fields: dict[str, Any] = {
        "magic": magic,
        "codec": codec,
        "level": _random_level(choice, codec),
        "log_append_time": choice.choice((None, None, T0 + 999)) if magic > 0 else None,
        "base_offset": choice.choice((0, 1, 118, 2**31 - 2, 2**40, 2**62)),
        "partition_leader_epoch": choice.choice((-1, 0, 7, MAX_INT)),
        "write_limit": choice.choice((MAX_INT, 100, 300, 1000, 16384)),
        "ratio": choice.choice((1.0, 0.5, 0.33, 1.7)),
    }
    if magic == 2 and choice.random() < 0.4:
        fields["producer_id"] = choice.choice((0, 9, 2**62))
        fields["producer_epoch"] = choice.choice((0, 2, 32767))
        fields["base_sequence"] = choice.choice((0, 5, MAX_INT - 1, MAX_INT))
        fields["is_transactional"] = choice.random() < 0.5
    if magic == 2 and choice.random() < 0.2:
        fields["delete_horizon_ms"] = choice.choice((0, T0, T0 + 10**9))
    return fields


def _random_level(choice: random.Random, codec: str) -> int | None:
    levels = {
        "gzip": (-1, 1, 6, 9),
        "lz4": (1, 8, 9, 10, 12, 17),
        "zstd": (-131072, -7, 1, 3, 5, 9, 19),
    }
    return choice.choice((None, choice.choice(levels[codec]))) if codec in levels else None


def _random_steps(choice: random.Random, magic: int, base_offset: int) -> list[Step | Control]:
    offset = base_offset
    steps: list[Step | Control] = []
    has_gaps = choice.random() < 0.3
    time = choice.choice((T0, T0, 0, 2**62))
    for _ in range(choice.choice((1, 1, 2, 3, 5, 20, 60))):
        offset += choice.choice((0, 1, 3, 200, 20_000)) if has_gaps else 0
        steps.append(
            Step(
                choice.choice((-1, time, time, time + choice.randrange(10**6))),
                _random_bytes(choice),
                _random_bytes(choice, largest=choice.choice((40, 200, 3000))),
                _random_headers(choice) if magic == 2 and choice.random() < 0.3 else [],
                offset if has_gaps else None,
            )
        )
        offset += 1
    if choice.random() < 0.1:
        size = choice.choice((32_767, 32_768, 65_536, 140_000))
        steps.append(Step(time, b"large", _random_text(choice, size), offset=None))
    return steps


def _random_bytes(choice: random.Random, largest: int = 20) -> bytes | None:
    kind = choice.random()
    if kind < 0.15:
        return None
    if kind < 0.25:
        return b""
    size = choice.randrange(1, largest + 1)
    return choice.randbytes(size) if kind < 0.5 else _random_text(choice, size)


def _random_text(choice: random.Random, size: int) -> bytes:
    words = [choice.randbytes(choice.randrange(1, 9)) for _ in range(8)]
    text = b"".join(choice.choice(words) for _ in range(size))
    return text[:size]


def _random_headers(choice: random.Random) -> Headers:
    keys = ("", "h", "tracé", "x" * 70)
    return [
        (choice.choice(keys).encode(), _random_bytes(choice)) for _ in range(choice.randrange(1, 4))
    ]


def _control_job(choice: random.Random) -> BatchJob:
    epoch = choice.choice((0, 3, MAX_INT))
    base_offset = choice.choice((0, 11, 2**33))
    if choice.random() < 0.4:
        kind = choice.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT))
        marker = Control(T0 + choice.randrange(99), kind, {"coordinator_epoch": epoch})
        return BatchJob(
            base_offset=base_offset,
            producer_id=choice.choice((0, 9)),
            producer_epoch=choice.choice((0, 5)),
            is_transactional=True,
            is_control=True,
            partition_leader_epoch=epoch,
            steps=(marker,),
        )
    return BatchJob(
        codec=choice.choice(CODECS),
        base_offset=base_offset,
        is_control=True,
        partition_leader_epoch=epoch,
        steps=tuple(_kraft_records(choice)),
    )


def _kraft_records(choice: random.Random) -> list[Control]:
    version = choice.choice((0, 1))
    voters = [_voter(choice, version) for _ in range(choice.randrange(4))]
    directory = uuid.UUID(int=choice.getrandbits(128))
    endpoint = {"name": "CONTROLLER", "host": "hôst", "port": choice.randrange(65536)}
    records = [
        Control(
            T0,
            ControlRecordType.LEADER_CHANGE,
            {
                "version": version,
                "leader_id": choice.randrange(9),
                "voters": voters,
                "granting_voters": voters[:1],
            },
        ),
        Control(
            T0 + 1,
            ControlRecordType.SNAPSHOT_HEADER,
            {"version": 0, "last_contained_log_timestamp": T0},
        ),
        Control(T0, ControlRecordType.KRAFT_VERSION, {"version": 0, "k_raft_version": version}),
        Control(
            T0 + 2,
            ControlRecordType.KRAFT_VOTERS,
            {
                "version": 0,
                "voters": [
                    {
                        "voter_id": 1,
                        "voter_directory_id": directory,
                        "endpoints": [endpoint] * choice.randrange(3),
                        "k_raft_version_feature": {
                            "min_supported_version": 0,
                            "max_supported_version": 1,
                        },
                    }
                ],
            },
        ),
        Control(T0, ControlRecordType.SNAPSHOT_FOOTER, {"version": 0}),
    ]
    return choice.sample(records, choice.randrange(1, len(records) + 1))


def _voter(choice: random.Random, version: int) -> dict[str, Any]:
    voter: dict[str, Any] = {"voter_id": choice.randrange(9)}
    if version:
        voter["voter_directory_id"] = uuid.UUID(int=choice.getrandbits(128))
    return voter
