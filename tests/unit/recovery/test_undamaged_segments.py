"""Salvage of segments without damage, and of what precedes it, without a table of the batches."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.resyncing import resync, valid_prefix
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.resyncing.valid_prefix import ValidPrefix
from kafkascan.logs.log_problems import BatchOffsets
from kafkascan.recovery.salvaging.segment_salvage import (
    SegmentSalvage,
    salvage_segment,
    segment_offsets,
)
from kafkascan.recovery.salvaging.undamaged_segment import salvage_undamaged
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


def _undamaged(
    log: bytes, base_offset: int | None, known_epochs: tuple[int, ...] = ()
) -> tuple[SegmentSalvage | None, ValidPrefix]:
    valid = ValidPrefix(ks.Source(log), *segment_offsets(base_offset, HIGHEST_OFFSET))
    found = salvage_undamaged(
        valid, "0.log", base_offset, BatchOffsets(), known_epochs=known_epochs
    )
    return found, valid


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
def test_it_is_what_the_evidence_says(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_prefix, "_ROWS", rows)
    log, base_offset, known_epochs = _UNDAMAGED[name]
    found, _ = _undamaged(log, base_offset, known_epochs)
    expected, _ = salvage_segment(ks.Source(log), "0.log", base_offset, known_epochs=known_epochs)
    assert found == expected
    assert not found.losses


_HIGH_EPOCH, _LOW_EPOCH = ([batch_v2(b"v", base_offset=40, partition_leader_epoch=epoch)]
                           for epoch in (5, -7))  # fmt: skip
_NEEDS_EVIDENCE: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "empty": (b"", ()),
    "of zeros": (bytes(4096), ()),
    "torn": (b"".join(_log()) + _log(1)[0][:30], ()),
    "corrupt": (b"".join(_log()) + b"\1" * 400, ()),
    "a wrong checksum": (b"".join(_log())[:-1] + b"!", ()),
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
    assert _undamaged(log, 0, known_epochs)[0] is None


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
    found, valid = _undamaged(log, 0)
    assert found is None
    with_valid = salvage_segment(ks.Source(log), "0.log", 0, valid=valid)[0]
    assert with_valid == salvage_segment(ks.Source(log), "0.log", 0)[0]
