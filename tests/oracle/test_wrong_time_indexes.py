"""Lookups of timestamps by wrong time indexes: what a broker answers, and what the log has."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import LoadArguments, Rebuild
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

_T0 = 1_714_000_000_000
_MODIFIED = _T0 + 400
_MISLED: list[bool] = []
"""Of each lookup, whether the broker's answer is not the first record."""


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("times")) as running:
        yield running


def write_log(folder: Path, dice: random.Random) -> None:
    """Write a log of a few segments with dense indexes; some timestamps are out of order."""
    folder.mkdir()
    offset = 0
    for _ in range(dice.randrange(1, 4)):
        path, log = folder / f"{offset:020}.log", b""
        for _ in range(dice.randrange(1, 30)):
            jump = dice.choice((0, 0, 0, 60, -40))
            times = sorted(_T0 + 10 * offset + jump + dice.randrange(30) for _ in range(3))
            records = [
                RecordV2(value=b"v", offset_delta=n, timestamp_delta=time - times[0])
                for n, time in enumerate(times)
            ]
            log += batch_of(
                records, base_offset=offset, base_timestamp=times[0], max_timestamp=times[-1]
            )
            offset += len(records)
        path.write_bytes(log)
        batches, base = ks.scan_batches(log).batches, int(path.stem)
        place = {"base_offset": base, "interval_bytes": dice.choice((1, 200))}
        ks.write_index(path.with_suffix(".index"), ks.build_offset_index(batches, **place))
        ks.write_index(path.with_suffix(".timeindex"), ks.build_time_index(batches, **place))
        os.utime(path, ns=(_MODIFIED * 1_000_000, _MODIFIED * 1_000_000))


def lie(path: Path, dice: random.Random) -> None:
    """Write a time index whose entries are in order, and of which some are wrong."""
    entries = ks.read_index(path).copy()
    kind = dice.choice(("times", "offsets", "both", "missing", "empty", "equal", "no file"))
    if kind in ("times", "both"):
        entries["timestamp"] += np.array([dice.randrange(-90, 90) for _ in entries])
        entries["timestamp"].sort()
    if kind in ("offsets", "both"):
        entries["relative_offset"] += np.array([dice.randrange(30) for _ in entries])
        entries["relative_offset"].sort()
    if kind == "missing":
        entries = entries[: dice.randrange(len(entries) + 1)]
    if kind == "equal" and len(entries):
        entries["timestamp"] = entries["timestamp"][dice.randrange(len(entries))]
    ks.write_index(path, entries[:0] if kind == "empty" else entries)
    if kind == "no file":
        path.unlink()


def first_records(folder: Path, timestamps: range) -> list[list[int] | None]:
    """By timestamp, the first record of the first segment that reaches it, of all records."""
    tables = [
        ks.read_records(log, columns=("offset", "timestamp"))
        for log in sorted(folder.glob("*.log"))
    ]

    def first(timestamp: int) -> list[int] | None:
        for table in tables:
            rows = np.flatnonzero(table["timestamp"] >= timestamp)
            if len(rows):
                return [int(table[name][rows[0]]) for name in ("timestamp", "offset")]
        return None

    return [first(timestamp) for timestamp in timestamps]


def found_by_us(folder: Path, timestamp: int, *, trust_index: bool) -> list[int] | None:
    found = ks.lookup_timestamp(folder, timestamp, trust_index=trust_index)
    return None if found is None else [found.timestamp, found.offset]


@pytest.mark.parametrize("seed", range(25))
def test_lookups(seed: int, rebuild: Rebuild, tmp_path: Path) -> None:
    dice, folder = random.Random(seed), tmp_path / "t-0"
    write_log(folder, dice)
    for path in sorted(folder.glob("*.timeindex")):
        lie(path, dice)
    timestamps = range(_T0 - 50, _T0 + 950, 17)
    arguments = LoadArguments(clean_shutdown=True)
    for timestamp, true, answer in zip(
        timestamps,
        first_records(folder, timestamps),
        rebuild.lookup(folder, arguments, timestamps=timestamps)["timestamps"],
        strict=True,
    ):
        expected = None if answer is None else answer[:2]
        assert found_by_us(folder, timestamp, trust_index=True) == expected, timestamp
        assert found_by_us(folder, timestamp, trust_index=False) == true, timestamp
        _MISLED.append(expected != true)


def test_wrong_indexes_mislead_brokers() -> None:
    """The lookups above differ for many timestamps."""
    assert sum(_MISLED) > len(_MISLED) // 10
