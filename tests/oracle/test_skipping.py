"""Reading offsets and timestamps only, beside Kafka's iterator that skips keys and values.

Kafka skips them in compressed batches only, where it steps from field to field by their sizes and
ignores the length of the record. kafkascan skips them in all batches of magic 2, from length to
length. Both agree on every batch that a full read accepts. Messages of magic 0 and 1 are read in
full by kafkascan, and field by field on demand by Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.dump import print_skipped
from tests.oracle.mutants import Mutant, mutants

pytestmark = pytest.mark.oracle

Rows = list[tuple[int, int, int]]
"""Offset, timestamp and sequence of each record."""


class Verdict(NamedTuple):
    """
    What Kafka's skipping iterator, our short read and our full read return; None: refused.

    `symbol` is that of the full read's error.
    """

    mutant: Mutant
    kafka: Rows | None
    short: Rows | None
    full: Rows | None
    symbol: str | None


@pytest.fixture(scope="module")
def verdicts(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    directory = tmp_path_factory.mktemp("skipping")
    groups = [list(group) for _, group in groupby(mutants(), lambda one: one.source_kind)]
    logs = [directory / f"{number}.log" for number in range(len(groups))]
    printed = [log.with_suffix(".jsonl") for log in logs]
    for log, group in zip(logs, groups, strict=True):
        log.write_bytes(b"".join(mutant.data for mutant in group))
    print_skipped(logs, printed, directory, class_paths)
    return [
        verdict
        for log, lines, group in zip(logs, printed, groups, strict=True)
        for verdict in _verdicts(group, log.read_bytes(), lines)
    ]


def _verdicts(group: list[Mutant], log: bytes, printed: Path) -> list[Verdict]:
    kafka: dict[int, Rows | None] = {}
    for line in map(json.loads, printed.read_text(encoding="utf-8").splitlines()):
        if "exception" in line:
            kafka[line["position"]] = None
        else:
            found = kafka.setdefault(line["position"], [])
            assert found is not None
            found.append((line["offset"], line["timestamp"], line["sequence"]))
    batches = ks.scan_batches(log).batches
    assert len(batches) == len(group)
    return [
        Verdict(
            mutant,
            kafka.get(int(batches["position"][row]), []),
            _read(log, batches[row : row + 1], ["offset", "timestamp", "sequence"])[0],
            *_read(log, batches[row : row + 1], None),
        )
        for row, mutant in enumerate(group)
    ]


def _read(
    log: bytes, batch: np.ndarray, columns: list[str] | None
) -> tuple[Rows | None, str | None]:
    try:
        table = ks.read_records(log, batch, columns=columns, control="include")
    except ks.CorruptBatchError as error:
        return None, error.symbol
    names = ("offset", "timestamp", "sequence")
    return list(zip(*(table[name].tolist() for name in names), strict=True)), None


def test_a_short_read_accepts_what_a_full_read_accepts(verdicts: list[Verdict]) -> None:
    for one in verdicts:
        if one.full is not None:
            assert one.short == one.full, one.mutant
        if one.mutant.magic < 2:
            assert one.short == one.full, one.mutant


def test_kafkas_skipping_iterator_agrees_on_sound_batches(verdicts: list[Verdict]) -> None:
    """Where a full read accepts the batch, all three return the same; few codecs differ."""
    counts = Counter(
        one.kafka == one.short for one in verdicts if one.full is not None and one.kafka is not None
    )
    assert counts[True] > 1000
    assert counts[False] == 0
    refused = [one for one in verdicts if one.full is not None and one.kafka is None]
    # Readers of streams differ: see the tolerated verdicts of test_mutants.py.
    assert len(refused) <= 0.02 * len(verdicts), [str(one.mutant)[:200] for one in refused[:5]]


def test_where_the_short_read_differs_from_kafkas(verdicts: list[Verdict]) -> None:
    """Every difference is in a batch that a full read refuses, and of a named kind."""
    met: Counter[str] = Counter()
    for one in verdicts:
        if one.kafka == one.short or one.full is not None:
            continue
        if one.mutant.magic < 2:
            # Kafka finds out when a key or value is asked for; kafkascan reads messages in full.
            is_size = one.short is None and one.symbol == "BAD_RECORD"
            met["only Kafka: sizes in messages" if is_size else "another reader of streams"] += 1
        elif one.mutant.codec == 0:
            # Kafka reads uncompressed records in full; kafkascan does not see damaged fields.
            assert one.kafka is None, one.mutant
            met["only we: not read in full"] += 1
        elif one.kafka is None:
            met["only we: sizes of keys, values and headers"] += 1
        elif one.short is None:
            met["only Kafka: the length of a record is ignored"] += 1
        else:
            met["other records behind a wrong length"] += 1
    assert met["only Kafka: sizes in messages"] >= 100, met
    assert met["only we: not read in full"] >= 10, met
    assert met["only we: sizes of keys, values and headers"] >= 10, met
    assert met["only Kafka: the length of a record is ignored"] >= 10, met
    assert met["another reader of streams"] <= 0.02 * len(verdicts), met
