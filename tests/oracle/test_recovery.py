"""Recovery compared with Kafka's: equal files, byte for byte, or the same refusal."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.damaged_dirs import DamagedDir, damaged_dir, golden_directories
from tests.oracle.damaged_overflows import overflowed
from tests.oracle.rebuild import Files, LoadArguments, Rebuild, read_files
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

SEED, COUNT, OVERFLOWS, TIERED = 20, 120, 60, 60


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("rebuild")) as running:
        yield running


def recovered(directory: Path, arguments: LoadArguments) -> ks.recovery.PartitionRecovery:
    done = ks.recover(
        directory,
        write=True,
        truncate=True,
        backup=False,
        recovery_point=arguments.recovery_point,
        log_start_offset=arguments.log_start_offset,
        interval_bytes=arguments.interval_bytes,
        tiered_topics=[directory.name.rpartition("-")[0]] if arguments.is_tiered else [],
        producer_expiration_ms=arguments.producer_id_expiration_ms,
        now_ms=arguments.now,
    )
    (partition,) = done.partitions
    return partition


def that_stay(files: Files) -> Files:
    """Return the files without those that Kafka deletes in the background.

    It leaves a preallocated index, all zeros, where a replacement had none.
    """
    return {
        name: data if any(data) else b""
        for name, data in files.items()
        if not name.endswith(".deleted")
    }


def without_left_whole(files: Files) -> Files:
    """
    Remove the indexes of segments that were split and also kept.

    Below the recovery point Kafka splits a segment whose indexes were bad, and goes on beside the
    parts with the whole, with indexes as they were when it saw that it must be split.
    """
    whole = set()
    for name, data in files.items():
        if name.endswith(".log"):
            ends = ks.scan_batches(data, on_corrupt="stop")["last_offset"]
            if (ends - int(name.removesuffix(".log")) >= 2**31).any():
                whole.add(name.removesuffix(".log"))
    lying = {f"{stem}.{kind}" for stem in whole for kind in ("index", "timeindex")}
    return {name: data for name, data in files.items() if name not in lying}


def verdict(rebuild: Rebuild, one: DamagedDir) -> str:
    """Recover copies of a directory both ways; fail if the results differ."""
    expected = rebuild.outcome_of_load(one.directory, one.arguments)
    copy = rebuild.copy_of(one.directory)
    found = recovered(copy, one.arguments)
    refusal = expected.answer.get("exception")
    if "an offset is negative" in str(found.error):
        return "negative"  # Kafka gives a segment a name with a minus
    if refusal is not None or found.error is not None:
        assert refusal is not None, (one, found.error)
        assert isinstance(found.error, ks.KafkaScanError), (one, refusal)
        return "refused"
    left, expected_files = that_stay(read_files(copy)), that_stay(expected.files)
    assert without_left_whole(left) == without_left_whole(expected_files), one
    assert found.log_end_offset == expected.answer["logEndOffset"], one
    assert found.log_start_offset == expected.answer["logStartOffset"], one
    return "same"


def test_damaged_directories(rebuild: Rebuild, tmp_path: Path) -> None:
    verdicts: Counter[str] = Counter()
    damage: Counter[str] = Counter()
    for number in range(COUNT):
        one = damaged_dir(tmp_path / str(number), rebuild, seed=f"{SEED}/{number}")
        # After a clean shutdown, a broker trusts all files.
        one = replace(one, arguments=replace(one.arguments, clean_shutdown=False))
        verdicts[verdict(rebuild, one)] += 1
        damage.update(one.what[1:])
        shutil.rmtree(tmp_path / str(number))
    assert verdicts["same"] > COUNT * 0.8
    assert verdicts["refused"] >= 3
    assert len(damage) > 25


@pytest.mark.parametrize("recovery_point", [0, 7, 100])
def test_stale_segments_beside_a_compacted_one(
    rebuild: Rebuild, tmp_path: Path, recovery_point: int
) -> None:
    """A copy of a folder without deletion keeps segments that the cleaner replaced."""
    folder = tmp_path / "stale-0"
    folder.mkdir()
    for base, *offsets in ((0, 2, 7, 9), (5, 5, 6, 7), (8, 8, 9), (10, 10, 11)):
        batches = [batch_of([RecordV2(value=b"v")], base_offset=offset) for offset in offsets]
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
        (folder / f"{base:020}.index").touch()
    arguments = LoadArguments(recovery_point=recovery_point, now=1_714_000_000_000)
    assert verdict(rebuild, DamagedDir(folder, arguments, ("stale",))) == "same"


def without_first_segment(directory: Path) -> None:
    """Delete the first segment as local retention does, once it is in remote storage."""
    first, *others = sorted(directory.glob("*.log"))
    if others:
        for path in directory.glob(f"{first.stem}.*"):
            path.unlink()


def test_tiered_topics(rebuild: Rebuild, tmp_path: Path) -> None:
    """The log start offset stays that of the checkpoint, before the first local segment."""
    verdicts: Counter[str] = Counter()
    with_state = 0
    for number in range(TIERED):
        root, seed = tmp_path / str(number), f"{SEED}/tiered/{number}"
        one = damaged_dir(root, rebuild, seed=seed, is_intact=bool(number % 2))
        arguments = replace(
            one.arguments, clean_shutdown=False, is_tiered=True, log_start_offset=number % 3
        )
        without_first_segment(one.directory)
        with_state += _has_state_at_its_start(one.directory)
        verdicts[verdict(rebuild, replace(one, arguments=arguments))] += 1
        shutil.rmtree(root)
    assert verdicts["same"] > TIERED * 0.8
    assert with_state > TIERED * 0.2


def _has_state_at_its_start(directory: Path) -> bool:
    """Return whether the first local segment has a snapshot that names producers."""
    first = min(directory.glob("*.log"), default=None)
    if first is None or int(first.stem) == 0:
        return False
    try:
        return len(ks.broker_state.read_producer_snapshot(first.with_suffix(".snapshot"))) > 0
    except (OSError, ks.KafkaScanError):
        return False


@pytest.mark.parametrize(
    "seed",
    [
        "91/30",  # an index below the recovery point leads an open transaction astray
        "91/160",  # the trailer of a gzip message of magic 1, the last of its segment
    ],
)
def test_logs_that_kafka_does_not_load(rebuild: Rebuild, tmp_path: Path, seed: str) -> None:
    one = damaged_dir(tmp_path, rebuild, seed=seed)
    one = replace(one, arguments=replace(one.arguments, clean_shutdown=False))
    assert verdict(rebuild, one) == "refused"


def test_offsets_too_far_apart(rebuild: Rebuild, tmp_path: Path) -> None:
    verdicts: Counter[str] = Counter()
    for number in range(OVERFLOWS):
        one = overflowed(tmp_path / str(number), rebuild, seed=f"{SEED}/{number}")
        verdicts[verdict(rebuild, one)] += 1
        shutil.rmtree(tmp_path / str(number))
    assert verdicts["same"] > OVERFLOWS * 0.7
    assert verdicts["refused"] >= 3


@pytest.mark.parametrize(
    "path", golden_directories(), ids=lambda path: f"{path.parts[-3]}-{path.name}"
)
@pytest.mark.parametrize("interval_bytes", [0, 4096])
def test_golden_directories_without_anything_but_logs(
    rebuild: Rebuild, tmp_path: Path, path: Path, interval_bytes: int
) -> None:
    bare = tmp_path / path.name
    bare.mkdir()
    for log in path.glob("*.log"):
        shutil.copy(log, bare)
    arguments = LoadArguments(interval_bytes=interval_bytes, now=1_714_000_000_000)
    assert verdict(rebuild, DamagedDir(bare, arguments, ("bare",))) == "same"


@pytest.mark.parametrize("interval_bytes", [0, 1, 100, 200, 4096])
@pytest.mark.parametrize("last_offset_delta", [0, 2])
def test_first_batch_again_and_again(
    rebuild: Rebuild, tmp_path: Path, interval_bytes: int, last_offset_delta: int
) -> None:
    first = batch_of([RecordV2(value=b"one")], base_offset=27, last_offset_delta=last_offset_delta)
    again = batch_of([RecordV2(value=b"one")], base_offset=27)
    folder = tmp_path / "repeated-0"
    folder.mkdir()
    (folder / f"{27:020}.log").write_bytes(first + 4 * again)
    (folder / f"{27:020}.index").touch()
    arguments = LoadArguments(interval_bytes=interval_bytes, now=1_714_000_000_000)
    assert verdict(rebuild, DamagedDir(folder, arguments, ("repeated",))) == "same"


def questions(directory: Path) -> tuple[list[int], list[int]]:
    """Return the offsets and timestamps to look up: all existing ones, and their neighbours."""
    offsets, timestamps = {0}, {0}
    for log in directory.glob("*.log"):
        scan = ks.scan_batches(log, on_corrupt="stop")
        for values, found in (
            (offsets, (scan["base_offset"], scan["last_offset"])),
            (timestamps, (scan["base_timestamp"], scan["max_timestamp"])),
        ):
            for column in found:
                values.update(int(value) + near for value in column for near in (-1, 0, 1))
        records = ks.read_records(log, scan.batches, columns=["timestamp"], control="include")
        timestamps.update(records["timestamp"].tolist())
    choice = random.Random(1)
    some = sorted(value for value in timestamps if value >= 0)
    return sorted(value for value in offsets if value >= 0), choice.sample(
        some, min(300, len(some))
    )


def is_in_a_batch(answer: dict[str, Any]) -> bool:
    """
    Return whether Kafka found a batch that reaches an offset.

    Offsets before the first local segment are in tiered storage, or deleted.
    """
    return answer["segment"] is not None and answer["translated"] is not None


def location(found: ks.logs.BatchLocation | None) -> list[Any] | None:
    return None if found is None else [found.position, found.size_in_bytes]


@pytest.mark.parametrize(
    "path", golden_directories(), ids=lambda path: f"{path.parts[-3]}-{path.name}"
)
def test_lookups(rebuild: Rebuild, tmp_path: Path, path: Path) -> None:
    directory = tmp_path / path.name
    shutil.copytree(path, directory)
    recovered(directory, LoadArguments(interval_bytes=100))
    for log in directory.glob("*.log"):
        # For batches without timestamps, Kafka uses the file's time; it must find no record there.
        os.utime(log, (-1, -1))
    if not any(log.stat().st_size for log in directory.glob("*.log")):
        pytest.skip("there is nothing in it")
    offsets, timestamps = questions(directory)
    answers = rebuild.lookup(directory, offsets=offsets, timestamps=timestamps)
    for trust_index in (False, True):
        for offset, answer in zip(offsets, answers["offsets"], strict=True):
            found = ks.lookup_offset(directory, offset, trust_index=trust_index)
            if is_in_a_batch(answer):
                assert location(found) == answer["translated"][1:], offset
        for timestamp, answer in zip(timestamps, answers["timestamps"], strict=True):
            record = ks.lookup_timestamp(directory, timestamp, trust_index=trust_index)
            said = None if record is None else [record.timestamp, record.offset]
            assert said == (None if answer is None else answer[:2]), timestamp
    lie = next(iter(directory.glob("*.index")))
    lie.write_bytes(b"\x00\x00\x00\x01\x00\x00\x00\x07" * 9)
    for offset, answer in zip(offsets, answers["offsets"], strict=True):
        if is_in_a_batch(answer):
            found = ks.lookup_offset(directory, offset)
            assert location(found) == answer["translated"][1:], offset
