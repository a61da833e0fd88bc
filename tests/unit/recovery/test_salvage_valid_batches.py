"""Salvage of segments whose kept batches are all before the first damage, without a table."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.resyncing import resync, valid_prefix
from kafkascan.logs.log_problems import BatchOffsets
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage, salvage_segment
from kafkascan.recovery.salvaging.valid_batches import salvage_valid
from tests.support.paths import GOLDEN
from tests.support.segments import T0, batch_v2, message_v1


def _write_segments(folder: Path, count: int) -> None:
    """Write two segments of small batches: their ends are compared."""
    folder.mkdir(parents=True)
    for first in (0, count // 2):
        with (folder / f"{first:020}.log").open("wb") as file:
            for start in range(first, first + count // 2, 10_000):
                offsets = np.arange(start, start + 10_000)
                file.write(ks.build_batches(offset=offsets, value=[b"v"] * 10_000, batch_size=1))


@pytest.mark.parametrize("is_copied", [False, True])
def test_memory_does_not_grow_with_the_number_of_batches(is_copied: bool, tmp_path: Path) -> None:
    peaks, counts = [], (20_000, 140_000, 420_000)
    for count in counts:
        folder, copy = tmp_path / str(count) / "t-0", tmp_path / f"copy-{count}"
        _write_segments(folder, count)
        tracemalloc.start()
        try:
            found = ks.salvage(folder, copy if is_copied else None, threads=1)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert sum(one.batches for one in found.partitions[0].segments) == count
        for path in folder.iterdir() if is_copied else ():
            assert (copy / path.name).read_bytes() == path.read_bytes()
    # A table of the batches takes 69 bytes for each; recovery of the copy fills buffers.
    assert peaks[2] - peaks[1] < (24 if is_copied else 4) * (counts[2] - counts[1])


def _log(count: int = 40, **fields: int) -> list[bytes]:
    choice = random.Random(count)
    return [
        batch_v2(
            choice.randbytes(choice.randrange(60)), base_offset=2 * row, last_offset_delta=1,
            records_count=2, base_timestamp=T0 + row, max_timestamp=T0 + row, **fields
        )
        for row in range(count)
    ]  # fmt: skip


def _salvaged(
    log: bytes, base_offset: int | None = 0, known_epochs: tuple[int, ...] = ()
) -> tuple[SegmentSalvage, bool]:
    """Return the result of a segment, and whether it took no table of the batches."""
    source = ks.Source(log)
    found = salvage_valid(source, "0.log", base_offset, BatchOffsets(), known_epochs=known_epochs)
    if isinstance(found, SegmentSalvage):
        return found, True
    by_evidence, _ = salvage_segment(
        source, "0.log", base_offset, known_epochs=known_epochs, scan=found
    )
    return by_evidence, False


def _by_evidence(
    log: bytes, base_offset: int | None = 0, known_epochs: tuple[int, ...] = ()
) -> SegmentSalvage:
    return salvage_segment(ks.Source(log), "0.log", base_offset, known_epochs=known_epochs)[0]


_UNDAMAGED: dict[str, tuple[bytes, int | None, tuple[int, ...]]] = {
    "one batch": (_log(1)[0], 0, ()),
    "many": (b"".join(_log()), 0, ()),
    "without a name": (b"".join(_log()[20:]), None, ()),
    "zeros at the end": (b"".join(_log()) + bytes(700), 0, ()),
    "gaps in the offsets": (b"".join(_log()[3:20] + _log()[23:]), 2, ()),
    "epochs that rise": (b"".join(_log()[:20] + _log(partition_leader_epoch=3)[20:]), 0, ()),
    "known epochs": (b"".join(_log(partition_leader_epoch=3)), 0, (1, 3, 5)),
    "unknown epochs": (b"".join(_log(partition_leader_epoch=7)), 0, (1, 3, 5)),
    "without counts": (message_v1(b"value", offset=4) + b"".join(_log()[3:]), 0, ()),
    **{
        str(path.relative_to(GOLDEN)): (path.read_bytes(), int(path.stem), ())
        for path in sorted(GOLDEN.rglob("*.log"))[::9]
        if path.stem.isdigit() and path.stat().st_size
    },
}


@pytest.mark.parametrize("name", _UNDAMAGED)
@pytest.mark.parametrize("rows", [1, 5, 1 << 16])
def test_undamaged_segments(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_prefix, "_ROWS", rows)
    found, is_without_table = _salvaged(*_UNDAMAGED[name])
    assert found == _by_evidence(*_UNDAMAGED[name])
    assert is_without_table
    assert not found.losses


_LOST_ENDS = {
    "torn": b"".join(_log()) + _log(1)[0][:30],
    "torn after one batch": _log(1)[0] + b"torn",
    "corrupt": b"".join(_log()) + b"\1" * 400,
    "corrupt, and zeros": b"".join(_log()) + b"\1" * 400 + bytes(1000),
    "wrong checksums": b"".join(_log())[:-1] + b"!",
    "wrong checksums, and zeros": b"".join(_log())[:-1] + b"!" + bytes(3000),
    "several wrong checksums": b"".join(_log()[:30]) + b"".join(_log()[30:]).replace(b"\1", b"\2"),
}


@pytest.mark.parametrize("name", _LOST_ENDS)
@pytest.mark.parametrize("rows", [1, 5, 1 << 16])
def test_damage_that_no_batch_follows(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_prefix, "_ROWS", rows)
    found, is_without_table = _salvaged(_LOST_ENDS[name])
    assert found == _by_evidence(_LOST_ENDS[name])
    assert found.losses
    if name != "several wrong checksums":
        assert is_without_table == (name != "torn after one batch")


_HIGH_EPOCH, _LOW_EPOCH = ([batch_v2(b"v", base_offset=40, partition_leader_epoch=epoch)]
                           for epoch in (5, -7))  # fmt: skip
_NEEDS_EVIDENCE: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "empty": (b"", ()),
    "of zeros": (bytes(4096), ()),
    "batches after damage": (b"".join(_log()[:20]) + b"\1" * 400 + b"".join(_log()[20:]), ()),
    "offsets go back": (b"".join(_log()[:30] + _log()[20:]), ()),
    "an offset beyond the segment": (batch_v2(b"v", base_offset=1 << 33), ()),
    "epochs that fall": (b"".join(_log(20, partition_leader_epoch=2) + _log()[20:]), ()),
    "an impossible epoch": (b"".join(_log(20) + _LOW_EPOCH), ()),
    "an epoch that the checkpoint lacks": (b"".join(_log(20) + _HIGH_EPOCH), (0, 3, 9)),
    "a flipped bit at the end": (b"".join([*_log(12), batch_v2(b"v", base_offset=56)]), ()),
}


@pytest.mark.parametrize("name", _NEEDS_EVIDENCE)
@pytest.mark.parametrize("rows", [1, 5, 1 << 16])
def test_what_may_be_wrong_is_left_to_the_evidence(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_prefix, "_ROWS", rows)
    log, known_epochs = _NEEDS_EVIDENCE[name]
    found, is_without_table = _salvaged(log, known_epochs=known_epochs)
    assert found == _by_evidence(log, known_epochs=known_epochs)
    assert not is_without_table


@pytest.mark.parametrize("seed", range(40))
def test_a_scan_goes_on_from_the_damage_as_if_it_had_begun_at_the_start(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(seed)
    batches = _log(60)
    for _ in range(choice.choice([1, 2, 5])):
        row = choice.randrange(len(batches))
        batches.insert(choice.randrange(len(batches)), batches[row])
        damaged = bytearray(batches[row])
        damaged[choice.randrange(len(damaged))] ^= 1 << choice.randrange(8)
        batches[row] = bytes(damaged)
    log = b"".join(batches)[: -choice.choice([1, 30, 200])]
    monkeypatch.setattr(valid_prefix, "_ROWS", choice.choice([1, 4, 30]))
    size = choice.choice([300, 1000, 1 << 27])  # small: damage is at the end of a piece
    for module in (valid_prefix, resync):
        monkeypatch.setattr(module, "VERIFIED_AT_ONCE", size)
    assert _salvaged(log)[0] == _by_evidence(log)
