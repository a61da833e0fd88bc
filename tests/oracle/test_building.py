"""Written batches and partitions equal Kafka's, and Kafka's readers and brokers accept them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition as AioPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition as PythonPartition

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.building import Building
from tests.oracle.live_lookups import consume_all
from tests.oracle.live_recovery import SHORT_SESSIONS, Records
from tests.oracle.rebuild import LoadArguments, read_files
from tests.support.batch_jobs import (
    CODECS,
    MAX_INT,
    T0,
    BatchJob,
    Step,
    build_here,
    random_job,
)
from tests.support.random_logs import random_log
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def kafka(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Building]:
    with Building(class_paths.broker, tmp_path_factory.mktemp("building")) as running:
        yield running


# ---- batches -----------------------------------------------------------------------------


def _has_same_library(job: BatchJob) -> bool:
    """
    Whether the codec's output equals Kafka's.

    Snappy is another implementation than snappy-java's; levels 1 and 2 of LZ4 differ
    since 1.10, which lz4-java brings and the Python package does not.
    """
    return job.codec != "snappy" and not (job.codec == "lz4" and job.level in (1, 2))


@pytest.mark.parametrize("part", range(4))
def test_a_batch_is_that_of_kafkas_builder(part: int, kafka: Building) -> None:
    """The bytes, the state after each step, and the refusals are equal."""
    met: Counter[str] = Counter()
    for seed in range(part * 500, part * 500 + 500):
        job = random_job(seed)
        theirs, ours = kafka.build(job), build_here(job)
        assert theirs["steps"] == ours.steps, seed
        if "exception" in theirs:
            met["refused"] += 1
            assert ours.error is not None, (seed, theirs["exception"])
            continue
        assert ours.error is None, (seed, ours.error)
        assert ours.info is not None
        assert theirs["info"] == dict(
            zip(("maxTimestamp", "shallowOffset"), ours.info, strict=True)
        )
        if _has_same_library(job):
            assert ours.data == theirs["bytes"], seed
            met[f"{job.codec}, magic {job.magic}"] += 1
        met["control"] += job.is_control
    assert min(met[f"none, magic {magic}"] for magic in (0, 1, 2)) > 5, met
    assert min(met[f"{codec}, magic 2"] for codec in ("gzip", "lz4", "zstd")) > 5, met
    assert min(met["refused"], met["control"]) > 10, met


def _columns(job: BatchJob) -> dict[str, Any]:
    steps = [step for step in job.steps if isinstance(step, Step)]
    offset, offsets = job.base_offset - 1, []
    for step in steps:
        offset = offset + 1 if step.offset is None else step.offset
        offsets.append(offset)
    return {
        "offset": offsets,
        "timestamp": [step.timestamp for step in steps],
        "key": [step.key for step in steps],
        "value": [step.value for step in steps],
        "headers": [step.headers for step in steps],
    }


def _built(job: BatchJob, batch_size: int) -> bytes:
    stamped = job.log_append_time is not None
    return ks.build_batches(
        _columns(job),
        batch_size=batch_size,
        magic=job.magic,
        compression_type=job.codec,
        compression_level=job.level,
        timestamp_type=ks.TimestampType.LOG_APPEND_TIME
        if stamped
        else ks.TimestampType.CREATE_TIME,
        log_append_time=-1 if job.log_append_time is None else job.log_append_time,
        producer_id=job.producer_id,
        producer_epoch=job.producer_epoch,
        base_sequence=job.base_sequence,
        is_transactional=job.is_transactional,
        partition_leader_epoch=job.partition_leader_epoch if job.magic == 2 else -1,
        delete_horizon_ms=job.delete_horizon_ms,
    )


def _expected_records(job: BatchJob) -> list[tuple[Any, ...]]:
    columns = _columns(job)
    found = []
    for number, (offset, time, key, value, headers) in enumerate(
        zip(*columns.values(), strict=True)
    ):
        if job.log_append_time is not None:
            time = job.log_append_time
        sequence = (job.base_sequence + number) & MAX_INT if job.base_sequence >= 0 else -1
        pairs = [(key, value) for key, value in headers]
        found.append((offset, time if job.magic else -1, sequence, key, value, pairs))
    return found


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_kafka_reads_every_record_of_every_batch(magic: int, kafka: Building) -> None:
    """Columns, split into batches of all sizes: Kafka accepts each batch and record."""
    met: Counter[str] = Counter()
    seed = 0
    while sum(met.values()) < 300:
        seed += 1
        job = random_job(("read", seed), is_sound=True)
        has_gaps = any(isinstance(step, Step) and step.offset is not None for step in job.steps)
        if job.is_control or job.magic != magic or (job.producer_id >= 0 and has_gaps):
            continue
        data = _built(job, random.Random(seed).choice((70, 200, 1000, 16384, MAX_INT)))
        read = kafka.read(data)
        assert "exception" not in read, (seed, read)
        assert read["validBytes"] == len(data)
        assert read["records"] == _expected_records(job), seed
        assert all(batch["isValid"] for batch in read["batches"])
        assert {batch["isTransactional"] for batch in read["batches"]} == {job.is_transactional}
        met[job.codec] += 1
    assert all(met[codec] > 20 for codec in CODECS[: 5 if magic == 2 else 4]), met


@pytest.mark.parametrize("codec", CODECS)
def test_columns_and_kafkas_builder_divide_records_alike(codec: str, kafka: Building) -> None:
    """Columns give the same batches as `has_room_for` step by step."""
    if not _has_same_library(BatchJob(codec=codec)):
        pytest.skip("another implementation of the codec")
    choice = random.Random(codec)
    steps = [
        Step(
            T0 + choice.randrange(10**5),
            choice.randbytes(8),
            choice.randbytes(choice.randrange(300)),
        )
        for _ in range(500)
    ]
    theirs, ours, taken = b"", b"", 0
    limit = 4096
    # A ratio so low that the uncompressed size decides.
    ratio = 1 / 1.05
    while taken < len(steps):
        base = taken
        builder = ks.BatchBuilder(
            compression_type=codec, base_offset=base, write_limit=limit,
            estimated_compression_ratio=ratio,
        )  # fmt: skip
        while taken < len(steps) and builder.has_room_for(
            steps[taken].timestamp, steps[taken].key, steps[taken].value
        ):
            builder.append(steps[taken].timestamp, steps[taken].key, steps[taken].value)
            taken += 1
        ours += builder.build()
        job = BatchJob(codec=codec, base_offset=base, write_limit=limit, ratio=ratio,
                       steps=tuple(steps[base:taken]))  # fmt: skip
        answer = kafka.build(job)
        assert all(step["hasRoom"] for step in answer["steps"])
        theirs += answer["bytes"]
    assert ours == theirs
    columns = _columns(BatchJob(steps=tuple(steps)))
    assert ks.build_batches(columns, batch_size=limit, compression_type=codec) == theirs


# ---- partitions --------------------------------------------------------------------------


@pytest.mark.parametrize("mixes_magics", [False, True])
def test_a_partition_has_the_files_of_a_log_that_was_appended_to(
    mixes_magics: bool, kafka: Building, tmp_path: Path
) -> None:
    """All files are equal: logs, indexes, transactions, snapshots, leader epochs."""
    segments = aborted = 0
    for seed in range(60):
        choice = random.Random(seed)
        log = random_log(seed, batches=choice.choice((1, 5, 40)), mixes_magics=mixes_magics)
        batches = ks.scan_batches(log).batches
        largest = int(ks.batches.size_in_bytes(batches).max())
        first = int(batches["base_offset"][0])
        limits = {
            "interval_bytes": choice.choice((0, 100, 1000, 4096)),
            "segment_bytes": max(largest, choice.choice((2000, 20_000, 1 << 30))),
            "max_index_bytes": choice.choice((48, 96, 4096, 10 << 20)),
        }
        segment_ms = choice.choice((10**5, 10**6, 2**62))
        base_offset = 0 if first < 100 else first
        theirs, ours = tmp_path / f"theirs-{seed}-0", tmp_path / f"ours-{seed}-0"
        theirs.mkdir()
        source = tmp_path / "batches"
        source.write_bytes(log)
        arguments = LoadArguments(
            log_start_offset=base_offset, clean_shutdown=True, now=T0, **limits
        )
        answer = kafka.append(theirs, source, arguments, segment_ms=segment_ms)
        with ks.SegmentWriter(
            ours, base_offset=base_offset, segment_ms=segment_ms, **limits
        ) as writer:
            for piece in _in_pieces(choice, log, batches):
                writer.append(piece)
        assert writer.base_offsets == answer["segments"], seed
        files = read_files(ours)
        assert files == read_files(theirs), seed
        segments += len(writer.base_offsets)
        aborted += any(name.endswith(".txnindex") for name in files)
    assert segments > 120
    assert aborted > 5


def _in_pieces(choice: random.Random, log: bytes, batches: Any) -> Iterator[bytes]:
    """Yield the same batches in several tables."""
    start = 0
    for end in (batches["position"] + ks.batches.size_in_bytes(batches)).tolist():
        if choice.random() < 0.3:
            yield log[start:end]
            start = end
    yield log[start:]


# ---- brokers and their clients -----------------------------------------------------------

_TOPIC = "written"


def _records_of(log: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return key and value by offset of the records that clients get."""
    table = ks.read_records(log)
    return {
        int(offset): (key, value)
        for offset, key, value in zip(
            table["offset"].tolist(), table.items("key"), table.items("value"), strict=True
        )
    }


@pytest.fixture(scope="module")
def written() -> dict[tuple[str, int], bytes]:
    """One partition per seed; every codec, producers, transactions, segments."""
    return {
        (_TOPIC, number): random_log(
            ("live", number), batches=150, ends_transactions=True, has_one_leader=True
        )
        for number in range(4)
    }


@pytest.fixture(scope="module")
def broker(
    class_paths: ClassPaths,
    tmp_path_factory: pytest.TempPathFactory,
    written: dict[tuple[str, int], bytes],
) -> Iterator[KafkaBroker]:
    """A broker that is started on partitions that it does not know."""
    # It creates the topic; then its files are deleted.
    with KafkaBroker(tmp_path_factory.mktemp("written"), class_paths, SHORT_SESSIONS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        (created,) = admin.create_topics([NewTopic(_TOPIC, len(written), 1)]).values()
        created.result(60)
        running.stop()
        for (topic, number), log in written.items():
            folder = running.data_dir / f"{topic}-{number}"
            topic_id = ks.broker_state.read_partition_metadata(
                folder / "partition.metadata"
            ).topic_id
            shutil.rmtree(folder)
            with ks.SegmentWriter(folder, topic_id=topic_id, segment_bytes=200_000) as writer:
                writer.append(log)
            assert len(writer.base_offsets) > 2
        running.start()
        yield running


def test_a_broker_takes_the_folder_as_it_is(broker: KafkaBroker) -> None:
    """It loads the logs without recovery and without complaints."""
    said = broker.log_file.read_text(errors="replace").splitlines()
    about_them = [line for line in said if f"{_TOPIC}-" in line]
    loads = [
        line for line in about_them if "LogLoader" in line and "Loading producer state" in line
    ]
    assert loads
    assert not [line for line in about_them if "Recovering unflushed segment" in line]
    assert not [line for line in about_them if " WARN " in line or " ERROR " in line]


def test_librdkafka_reads_all(broker: KafkaBroker, written: dict[tuple[str, int], bytes]) -> None:
    found: Records = consume_all(broker.bootstrap_servers, written)
    assert found == {one: _records_of(log) for one, log in written.items()}


def test_librdkafka_reads_what_is_committed(
    broker: KafkaBroker, written: dict[tuple[str, int], bytes]
) -> None:
    found = consume_all(broker.bootstrap_servers, written, committed_only=True)
    expected = {one: _committed(log) for one, log in written.items()}
    assert found == expected
    assert any(len(expected[one]) < len(_records_of(log)) for one, log in written.items())


def _committed(log: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return the records outside of aborted transactions; every transaction has ended."""
    batches = ks.scan_batches(log).batches
    batches = batches[ks.batches.is_transactional(batches) & ~ks.batches.is_control(batches)]
    left = _records_of(log)
    for aborted in ks.broker_state.build_transaction_index(log).tolist():
        _, producer, first, last, _ = aborted
        is_its = (batches["producer_id"] == producer) & (batches["base_offset"] >= first)
        for batch in batches[is_its & (batches["base_offset"] < last)]:
            for offset in range(
                int(batch["base_offset"]), int(ks.batches.last_offset(batch[None])[0]) + 1
            ):
                left.pop(offset, None)
    return left


def test_kafka_python_reads_all(broker: KafkaBroker, written: dict[tuple[str, int], bytes]) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * HANG_SECONDS,
        enable_auto_commit=False,
    )
    consumer.assign([PythonPartition(*one) for one in written])
    expected = {one: _records_of(log) for one, log in written.items()}
    found: Records = {one: {} for one in written}
    for message in consumer:
        found[message.topic, message.partition][message.offset] = (message.key, message.value)
        if sum(map(len, found.values())) == sum(map(len, expected.values())):
            break
    consumer.close()
    assert found == expected


def test_aiokafka_reads_all(broker: KafkaBroker, written: dict[tuple[str, int], bytes]) -> None:
    expected = {one: _records_of(log) for one, log in written.items()}
    found = asyncio.run(_read_with_aiokafka(broker.bootstrap_servers, expected))
    assert found == expected


async def _read_with_aiokafka(servers: str, expected: Records) -> Records:
    found: Records = {one: {} for one in expected}
    total = sum(map(len, expected.values()))
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([AioPartition(*one) for one in expected])
        while sum(map(len, found.values())) < total:
            read = await consumer.getmany(timeout_ms=1000 * HANG_SECONDS)
            assert read, "the broker gives nothing more"
            for partition, messages in read.items():
                for message in messages:
                    found[partition.topic, partition.partition][message.offset] = (
                        message.key,
                        message.value,
                    )
    finally:
        await consumer.stop()
    return found
