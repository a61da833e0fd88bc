"""Salvage of segments whose undisturbed batches are joined to runs: memory, and equal results."""

from __future__ import annotations

import functools
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.resyncing import batch_runs, kept_ranges, offset_evidence, resync
from kafkascan.recovery.salvaging import foreign_ranges, offset_repair, segment_salvage
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage, salvage_segment
from tests.support.paths import GOLDEN
from tests.support.segments import T0, batch_v2, message_v1

_EVERY = 2_000


def _small_batches(first: int, count: int) -> bytearray:
    parts = (
        ks.build_batches(offset=np.arange(start, start + 10_000), value=[b"v"] * 10_000,
                         batch_size=1)
        for start in range(first, first + count, 10_000)
    )  # fmt: skip
    return bytearray(b"".join(parts))


def _undamaged(log: bytearray, size: int) -> None:
    pass


def _wrong_length(log: bytearray, size: int) -> None:
    log[len(log) // 2 // size * size + 8] ^= 1


def _wrong_checksums(log: bytearray, size: int) -> None:
    for stop in range(_EVERY * size, len(log), _EVERY * size):
        log[stop - 1] ^= 1


def _lost_bytes(log: bytearray, size: int) -> None:
    start = len(log) // 2 // size * size
    log[start : start + 30 * size] = b"\1" * 300


def _swapped(log: bytearray, size: int) -> None:
    start = len(log) // 2 // size * size
    first, second = log[start : start + size], log[start + size : start + 2 * size]
    log[start : start + 2 * size] = second + first


def _repeated(log: bytearray, size: int) -> None:
    start = len(log) // 2 // size * size
    log[start:start] = log[start - 20 * size : start]


def _moved(log: bytearray, size: int) -> None:
    start = len(log) // 4 // size * size
    moved = log[start : start + size]
    del log[start : start + size]
    log[2 * start : 2 * start] = moved


def _wrong_offset(log: bytearray, size: int) -> None:
    log[len(log) // 2 // size * size + 5] ^= 1 << 4


_DAMAGE: dict[str, Callable[[bytearray, int], None]] = {
    "none": _undamaged,
    "a wrong length": _wrong_length,
    "wrong checksums": _wrong_checksums,
    "lost bytes": _lost_bytes,
    "swapped batches": _swapped,
    "repeated batches": _repeated,
    "a moved batch": _moved,
    "a wrong offset": _wrong_offset,
}


@pytest.mark.parametrize("name", _DAMAGE)
def test_memory_grows_by_a_part_of_24_bytes_a_batch(name: str, tmp_path: Path) -> None:
    peaks, counts = [], (140_000, 420_000)
    for count in counts:
        folder = tmp_path / str(count) / "t-0"
        folder.mkdir(parents=True)
        log = _small_batches(0, count)
        _DAMAGE[name](log, len(log) // count)
        (folder / f"{0:020}.log").write_bytes(log)
        del log
        peaks.append(_peak(folder, None))
    # A table of the batches takes 69 bytes for each.
    assert peaks[1] - peaks[0] < 24 * (counts[1] - counts[0])


def test_memory_of_a_copy(tmp_path: Path) -> None:
    peaks, counts = [], (20_000, 140_000, 420_000)
    for count in counts:
        folder, copy = tmp_path / str(count) / "t-0", tmp_path / f"copy-{count}"
        folder.mkdir(parents=True)
        for first in (0, count // 2):  # their ends are compared
            (folder / f"{first:020}.log").write_bytes(_small_batches(first, count // 2))
        peaks.append(_peak(folder, copy))
        for path in folder.iterdir():
            assert (copy / path.name).read_bytes() == path.read_bytes()
    # Recovery of the copy fills buffers.
    assert peaks[2] - peaks[1] < 24 * (counts[2] - counts[1])


def test_memory_of_segments_that_overlap(tmp_path: Path) -> None:
    peaks, counts = [], (140_000, 420_000)
    for count in counts:
        folder = tmp_path / str(count) / "t-0"
        folder.mkdir(parents=True)
        for first in (0, count // 4):
            (folder / f"{first:020}.log").write_bytes(_small_batches(first, count // 2))
        peaks.append(_peak(folder, None))
    assert peaks[1] - peaks[0] < 24 * (counts[1] - counts[0])


def _half_repeated(count: int) -> bytes:
    return bytes(2 * _small_batches(0, count // 2))


def _thirds_repeated(count: int) -> bytes:
    return bytes(2 * _small_batches(0, count // 3) + _small_batches(count // 3, count // 3))


def _half_of_another_segment(count: int) -> bytes:
    return bytes(_small_batches(5_000_000, count // 2) + _small_batches(0, count // 2))


# The logs, and the base offset in their names.
_NOT_KEPT: dict[str, tuple[Callable[[int], bytes], int]] = {
    "below the name": (lambda count: bytes(_small_batches(0, count)), 5_000_000),
    "half below the name": (_half_of_another_segment, 5_000_000),
    "half repeated": (_half_repeated, 0),
    "thirds repeated": (_thirds_repeated, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["below the name", "half repeated", "thirds repeated"])
def test_memory_of_batches_that_are_not_kept(name: str, tmp_path: Path) -> None:
    # Each part of the logs is longer than a table of the scan.
    (make, base_offset), peaks, counts = _NOT_KEPT[name], [], (200_000, 300_000)
    for count in counts:
        folder = tmp_path / str(count) / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{base_offset:020}.log").write_bytes(make(count))
        peaks.append(_peak(folder, None))
    assert peaks[1] - peaks[0] < 24 * (counts[1] - counts[0])


@pytest.mark.parametrize("name", _NOT_KEPT)
def test_runs_that_are_not_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, base_offset = _NOT_KEPT[name]
    found = _require_same(make(60_000), monkeypatch, base_offset)
    assert len(found.losses) + len(found.duplicates) >= 20_000


def _rearranged(choice: random.Random) -> tuple[bytes, int]:
    """Return a log with whole parts that are repeated, or out of the segment; and its name."""
    batches, base_offset = _log(choice.choice([40, 120])), 0
    for _ in range(choice.choice([1, 2])):
        start, stop = sorted(choice.sample(range(len(batches) + 1), 2))
        kind = choice.randrange(4)
        if kind == 0:
            batches[stop:stop] = batches[start:stop]
        elif kind == 1:
            batches += batches
        elif kind == 2:
            base_offset = 2 * start
        else:
            batches.insert(start, b"\1" * 200)
    return b"".join(batches), base_offset


@pytest.mark.parametrize("seed", range(40))
def test_parts_that_are_not_kept(
    seed: int, joins_short_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, base_offset = _rearranged(random.Random(seed))
    _require_same(log, monkeypatch, base_offset)


def _peak(folder: Path, copy: Path | None) -> int:
    """Return the most memory that a salvage takes, in bytes."""
    tracemalloc.start()
    try:
        ks.salvage(folder, copy, threads=1)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- equal results ---------------------------------------------------------------------------


@pytest.fixture(params=[1, 5, 1 << 16])
def joins_short_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join runs of few batches, in tables of few rows."""
    for module in (batch_runs, kept_ranges, foreign_ranges):
        monkeypatch.setattr(module, "NEIGHBOURS", 4)
    monkeypatch.setattr(kept_ranges, "AT_END", 4)
    monkeypatch.setattr(offset_repair, "_AT_END", 3)
    monkeypatch.setattr(offset_evidence, "_MOST_IN_SUPPORT", 8)
    monkeypatch.setattr(batch_runs, "_ROWS", request.param)
    monkeypatch.setattr(batch_runs, "_JOINED", request.param)
    monkeypatch.setattr(resync, "_ROWS", max(16, request.param))


def _log(count: int = 80, **fields: int) -> list[bytes]:
    choice = random.Random(count)
    return [
        batch_v2(
            choice.randbytes(choice.randrange(60)), base_offset=2 * row, last_offset_delta=1,
            records_count=2, base_timestamp=T0 + row, max_timestamp=T0 + row, **fields
        )
        for row in range(count)
    ]  # fmt: skip


def _require_same(
    log: bytes,
    monkeypatch: pytest.MonkeyPatch,
    base_offset: int | None = 0,
    known_epochs: tuple[int, ...] = (),
) -> SegmentSalvage:
    """Return the result of a segment, which is that of a salvage without runs."""
    salvaged = functools.partial(
        salvage_segment, ks.Source(log), "0.log", base_offset, known_epochs=known_epochs
    )
    result, repaired = salvaged()
    with monkeypatch.context() as context:
        context.setattr(
            segment_salvage,
            "scan_with_resync",
            lambda *values, **options: resync.scan_with_resync(
                *values, **options | {"joined": False}
            ),
        )
        expected, whole = salvaged()
    assert result == expected
    assert repaired.whole().batches.tobytes() == whole.batches.tobytes()
    assert repaired.patches() == whole.patches()
    return result


_HIGH_EPOCH, _LOW_EPOCH = ([batch_v2(b"v", base_offset=160, partition_leader_epoch=epoch)]
                           for epoch in (5, -7))  # fmt: skip
_LOGS: dict[str, tuple[bytes, int | None, tuple[int, ...]]] = {
    "one batch": (_log(1)[0], 0, ()),
    "many": (b"".join(_log()), 0, ()),
    "without a name": (b"".join(_log()[20:]), None, ()),
    "zeros at the end": (b"".join(_log()) + bytes(700), 0, ()),
    "gaps in the offsets": (b"".join(_log()[3:40] + _log()[43:]), 2, ()),
    "gaps, and a wrong order": (b"".join(_log()[:70:2] + _log()[60:]), 0, ()),
    "epochs that rise": (b"".join(_log()[:40] + _log(partition_leader_epoch=3)[40:]), 0, ()),
    "known epochs": (b"".join(_log(partition_leader_epoch=3)), 0, (1, 3, 5)),
    "unknown epochs": (b"".join(_log(partition_leader_epoch=7)), 0, (1, 3, 5)),
    "without counts": (message_v1(b"value", offset=4) + b"".join(_log()[3:]), 0, ()),
    "torn": (b"".join(_log()) + _log(1)[0][:30], 0, ()),
    "torn after one batch": (_log(1)[0] + b"torn", 0, ()),
    "corrupt": (b"".join(_log()) + b"\1" * 400, 0, ()),
    "corrupt, and zeros": (b"".join(_log()) + b"\1" * 400 + bytes(1000), 0, ()),
    "wrong checksums": (b"".join(_log())[:-1] + b"!", 0, ()),
    "several wrong checksums": (
        b"".join(_log()[:50]) + b"".join(_log()[50:]).replace(b"\1", b"\2"), 0, ()),
    "empty": (b"", 0, ()),
    "of zeros": (bytes(4096), 0, ()),
    "batches after damage": (b"".join(_log()[:30]) + b"\1" * 400 + b"".join(_log()[30:]), 0, ()),
    "offsets go back": (b"".join(_log()[:60] + _log()[20:]), 0, ()),
    "an offset beyond the segment": (batch_v2(b"v", base_offset=1 << 33), 0, ()),
    "epochs that fall": (b"".join(_log(40, partition_leader_epoch=2) + _log()[40:]), 0, ()),
    "an impossible epoch": (b"".join(_log() + _LOW_EPOCH), 0, ()),
    "an epoch that the checkpoint lacks": (b"".join(_log() + _HIGH_EPOCH), 0, (0, 3, 9)),
    "a flipped bit at the end": (b"".join([*_log(12), batch_v2(b"v", base_offset=56)]), 0, ()),
    **{
        str(path.relative_to(GOLDEN)): (path.read_bytes(), int(path.stem), ())
        for path in sorted(GOLDEN.rglob("*.log"))[::9]
        if path.stem.isdigit() and path.stat().st_size
    },
}  # fmt: skip


@pytest.mark.parametrize("name", _LOGS)
def test_runs_are_as_good_as_their_batches(
    name: str, joins_short_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _require_same(_LOGS[name][0], monkeypatch, *_LOGS[name][1:])


def _with_damage(choice: random.Random, **fields: int) -> bytes:
    batches = _log(choice.choice([40, 120]), **fields)
    for _ in range(choice.choice([1, 2, 5])):
        row = choice.randrange(len(batches))
        start, stop = sorted(choice.choices(range(len(batches)), k=2))
        kind = choice.randrange(4)
        if kind == 0:
            batches.insert(choice.randrange(len(batches)), batches[row])
        elif kind == 1:
            batches[start:start] = batches[stop - choice.randrange(20) : stop]
        elif kind == 2:
            batches.insert(choice.randrange(len(batches)), batches.pop(row))
        damaged = bytearray(batches[row])
        damaged[choice.choice([choice.randrange(len(damaged)), 7, 6, 11])] ^= 1 << choice.randrange(
            8
        )
        batches[row] = bytes(damaged)
    return b"".join(batches)[: -choice.choice([1, 30, 200])]


@pytest.mark.parametrize("seed", range(60))
def test_damage_beside_runs(
    seed: int, joins_short_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(seed)
    monkeypatch.setattr(resync, "VERIFIED_AT_ONCE", choice.choice([300, 1000, 1 << 27]))
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5} if seed % 3 == 0 else {}
    _require_same(_with_damage(choice, **fields), monkeypatch)


@pytest.mark.parametrize("name", _DAMAGE)
def test_long_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _small_batches(0, 10_000)
    _DAMAGE[name](log, len(log) // 10_000)
    found = _require_same(bytes(log), monkeypatch)
    assert found.batches > 9_000
