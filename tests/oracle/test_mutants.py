"""Damaged batches: kafkascan accepts and refuses the same batches as Kafka's readers.

Checksums are right, so that the readers themselves have to notice. Of the few thousand mutants
about half are still read by Kafka, as other records than before or the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.dump import print_records
from tests.oracle.mutants import Mutant, mutants
from tests.support.compare_records import (
    KafkaReading,
    RecordFields,
    compare_records,
    differences,
    our_records,
    parse_records,
)
from tests.support.records import RecordV2, batch_of, zstd_of_repeated_value
from tests.support.segments import batch_v2

pytestmark = pytest.mark.oracle

_KINDS = [(magic, codec) for magic in (0, 1) for codec in range(4)] + [(2, n) for n in range(5)]
_GZIP, _ZSTD = 1, 4

Kind = tuple[int, int]
Readings = dict[Kind, tuple[list[Mutant], bytes, KafkaReading]]


@pytest.fixture(scope="module")
def readings(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Readings:
    """The mutants of each kind of batch, their log, and Kafka's reading of it."""
    directory = tmp_path_factory.mktemp("mutants")
    groups = {kind: list(group) for kind, group in groupby(mutants(), lambda one: one.source_kind)}
    logs = [directory / f"magic-{magic}-codec-{codec}.log" for magic, codec in groups]
    printed = [log.with_suffix(".jsonl") for log in logs]
    for log, group in zip(logs, groups.values(), strict=True):
        log.write_bytes(b"".join(mutant.data for mutant in group))
    print_records(logs, printed, directory, class_paths)
    return {
        kind: (group, log.read_bytes(), parse_records(lines.read_text(encoding="utf-8")))
        for (kind, group), log, lines in zip(groups.items(), logs, printed, strict=True)
    }


@dataclass(frozen=True)
class Verdicts:
    """The records or errors of Kafka and kafkascan for one mutant."""

    mutant: Mutant
    kafka: list[RecordFields] | str
    ours: list[RecordFields] | ks.CorruptBatchError

    def __str__(self) -> str:
        if isinstance(self.kafka, str) or isinstance(self.ours, ks.CorruptBatchError):
            kafka = self.kafka if isinstance(self.kafka, str) else f"{len(self.kafka)} records"
            ours = f"{len(self.ours)} records" if isinstance(self.ours, list) else str(self.ours)
            return f"{self.mutant}\n  Kafka: {kafka}\n  we: {ours}"
        return "\n  ".join([str(self.mutant), *list(differences(self.kafka, self.ours))[:3]])

    @property
    def name(self) -> str:
        """Return one of: same, other, neither reads it, only Kafka, only we."""
        if isinstance(self.kafka, str):
            return "only we" if isinstance(self.ours, list) else "neither"
        if not isinstance(self.ours, list):
            return "only Kafka"
        return "same" if self.kafka == self.ours else "other"

    @property
    def our_reason(self) -> str:
        return "" if isinstance(self.ours, list) else f"{self.ours.reason} [{self.ours.symbol}]"


def _size_beyond_the_heap(one: Verdicts) -> bool:
    """Kafka allocates a message inside a wrapper before it checks the remaining size
    (DataLogInputStream.nextBatch). Above the heap's size that is an OutOfMemoryError; below it
    the message is skipped, as kafkascan does for every size.
    """
    return one.name == "only we" and str(one.kafka).startswith("java.lang.OutOfMemoryError")


def _no_records_in_garbage(one: Verdicts) -> bool:
    """Kafka's iterators disagree about a compressed batch whose count is 0: iterator() reads no
    byte, as kafkascan does; streamingIterator() opens the stream first.
    """
    return one.name == "only we" and one.ours == [] and one.mutant.source_kind[0] == 2


def _second_gzip_header(one: Verdicts) -> bool:
    """GZIPInputStream.readTrailer of the JDK ignores bytes after a member that start like another
    member with a truncated header.
    """
    data, codec = one.mutant.data, one.mutant.codec
    return (
        one.name == "only Kafka"
        and codec == _GZIP
        and data.count(b"\x1f\x8b\x08") > 1
        and "the data is truncated" in one.our_reason
    )


def _second_zstd_frame(one: Verdicts) -> bool:
    """ZstdInputStreamNoFinalizer stores that a frame is finished until it refills its buffer: the
    end of later frames in the same buffer may be missing.
    """
    is_truncated = any(
        words in one.our_reason
        for words in ("a frame is truncated", "trailing bytes after", "not enough data for frame")
    )
    return one.name == "only Kafka" and one.mutant.codec == _ZSTD and is_truncated


def _dependent_lz4_blocks(one: Verdicts) -> bool:
    """kafkascan reads frames with dependent blocks; Kafka does not."""
    return one.name == "only we" and "Dependent block stream is unsupported" in str(one.kafka)


_TOLERATED: list[Callable[[Verdicts], bool]] = [
    _size_beyond_the_heap,
    _no_records_in_garbage,
    _second_gzip_header,
    _second_zstd_frame,
    _dependent_lz4_blocks,
]
_LARGEST_TOLERATED_SHARE = 0.05


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: f"magic-{kind[0]}-codec-{kind[1]}")
def test_the_same_records_or_none(kind: Kind, readings: Readings) -> None:
    group, log, kafka = readings[kind]
    verdicts = list(_verdicts(group, log, kafka))
    differ = [one for one in verdicts if one.name not in ("same", "neither")]
    unknown = [one for one in differ if not any(is_one(one) for is_one in _TOLERATED)]
    shown = "\n".join(str(one) for one in unknown[:10])
    assert not unknown, f"{len(unknown)} of {len(verdicts)} mutants\n{shown}"
    assert len(differ) <= _LARGEST_TOLERATED_SHARE * len(verdicts)
    # Both verdicts are frequent.
    names = Counter(one.name for one in verdicts)
    assert len(verdicts) >= 300
    assert min(names["same"], names["neither"]) >= len(verdicts) // 10, names


def test_iter_records_says_the_same(readings: Readings) -> None:
    """From any position, it returns the records that Kafka reads, up to a damaged batch."""
    compared = 0
    for group, log, kafka in readings.values():
        batches = ks.scan_batches(log).batches
        for first in range(0, len(group), 10):
            found, end = _read_up_to_damage(log, batches[first:])
            here = range(int(batches["position"][first]), end)
            if not any(position in here for position in kafka.refusals):
                assert found == [record for record in kafka.records if record.position in here]
                compared += len(found)
    assert compared >= 1000


@pytest.mark.parametrize("seed", range(3))
def test_header_keys_that_are_not_utf8(seed: int, class_paths: ClassPaths, tmp_path: Path) -> None:
    """Kafka converts them to strings and replaces invalid UTF-8."""
    dice = random.Random(seed)
    edges = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ed ee ef f0 f1 f4 f5 f8 ff")
    keys = [bytes(dice.choices(edges, k=dice.randrange(1, 7))) for _ in range(5000)]
    log, lines = tmp_path / "keys.log", tmp_path / "keys.jsonl"
    log.write_bytes(batch_of([RecordV2(headers=[(key, None)]) for key in keys]))
    print_records([log], [lines], tmp_path, class_paths)
    assert compare_records(log, lines.read_text(encoding="utf-8")) == len(keys)
    arrow_keys = ks.read_records(log).to_arrow()["headers"].combine_chunks().flatten().field("key")
    kafka = parse_records(lines.read_text(encoding="utf-8")).records
    assert [key.encode() for key in arrow_keys.to_pylist()] == [one.headers[0][0] for one in kafka]


def test_zstd_blocks_of_a_repeated_byte(class_paths: ClassPaths, tmp_path: Path) -> None:
    """Kafka's stream refuses blocks above 128 KiB, as kafkascan does."""
    for size, is_read in ((1 << 17, True), ((1 << 17) + 1, False)):
        log, lines = tmp_path / f"{size}.log", tmp_path / f"{size}.jsonl"
        log.write_bytes(batch_v2(zstd_of_repeated_value(size), attributes=_ZSTD))
        print_records([log], [lines], tmp_path, class_paths)
        kafka = parse_records(lines.read_text(encoding="utf-8"))
        assert bool(kafka.refusals) != is_read
        if is_read:
            assert list(our_records([ks.read_records(log)])) == kafka.records
            continue
        with pytest.raises(ks.InvalidRecordError, match="size of a block is out of range"):
            ks.read_records(log)


def _verdicts(group: Sequence[Mutant], log: bytes, kafka: KafkaReading) -> list[Verdicts]:
    batches = ks.scan_batches(log).batches
    assert len(batches) == len(group)
    assert kafka.end["end"] == "clean"
    found = kafka.by_batch()
    verdicts = []
    for row, mutant in enumerate(group):
        position = int(batches["position"][row])
        theirs = kafka.refusals.get(position) or found.get(position, [])
        ours: list[RecordFields] | ks.CorruptBatchError
        try:
            table = ks.read_records(log, batches[row : row + 1], control="include", verify=True)
            ours = list(our_records([table]))
        except (ks.InvalidRecordError, ks.UnsupportedCompressionError) as error:
            ours = error
        verdicts.append(Verdicts(mutant, theirs, ours))
    return verdicts


def _read_up_to_damage(log: bytes, batches: np.ndarray) -> tuple[list[RecordFields], int]:
    found: list[RecordFields] = []
    try:
        for table in ks.iter_records(log, batches, control="include", batch_size=5):
            found += our_records([table])
    except ks.CorruptBatchError as damage:
        return found, damage.position
    return found, len(log)
