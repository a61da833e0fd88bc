"""Salvage: offsets that are missing are those of the copy, and zeros are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.findings import Severity
from kafkascan.recovery.salvaging.kept_offsets import KeptOffsets
from tests.support.records import RecordV2, batch_of

_RECORDS = 3
_UNCOVERED = {"base_offset": slice(0, 8), "batch_length": slice(8, 12), "magic": slice(16, 17)}


def _batches(count: int, first: int = 0) -> list[bytearray]:
    records = [RecordV2(b"k", b"v", offset_delta=delta) for delta in range(_RECORDS)]
    offsets = range(first, first + _RECORDS * count, _RECORDS)
    return [bytearray(batch_of(records, base_offset=offset)) for offset in offsets]


def _log(folder: Path, **segments: bytes) -> Path:
    folder = folder / "orders-0"
    folder.mkdir()
    for name, data in segments.items():
        (folder / f"{int(name[1:]):020}.log").write_bytes(data)
    return folder


def _found(folder: Path, symbol: str) -> list[tuple[int | None, str]]:
    """Return the problems of a dry run and of a copy, which are the same, and those of the copy."""
    dry, copied = ks.salvage(folder), ks.salvage(folder, folder.parent / "copy")
    assert list(dry.problems) == list(copied.problems)
    return [(one.position, one.message) for one in dry.problems if one.symbol == symbol]


@pytest.mark.parametrize(
    ("field", "value"),
    [("magic", 1), ("batch_length", 5), ("batch_length", 206), ("base_offset", -5)],
)
def test_a_repaired_batch_leaves_no_gap(field: str, value: int, tmp_path: Path) -> None:
    batches = _batches(8)
    part = _UNCOVERED[field]
    size = part.stop - part.start
    batches[5][part] = value.to_bytes(size, "big", signed=True)
    folder = _log(tmp_path, s0=b"".join(batches))
    assert _found(folder, "OFFSET_GAP") == []
    assert ks.read_records(tmp_path / "copy")["offset"].tolist() == list(range(8 * _RECORDS))


def test_the_last_batch_of_a_segment_is_repaired(tmp_path: Path) -> None:
    batches, others = _batches(6), _batches(2, 18)
    batches[5][:8] = (900).to_bytes(8, "big")
    folder = _log(tmp_path, s0=b"".join(batches), s18=b"".join(others))
    assert _found(folder, "OFFSET_GAP") == []
    assert len(ks.read_records(tmp_path / "copy")) == 8 * _RECORDS


def test_gaps_beside_repairs_and_losses_stay(tmp_path: Path) -> None:
    batches = _batches(16)
    batches[10][16] = 1  # magic: repaired
    batches[5][-1] ^= 1  # lost
    del batches[13], batches[2]
    folder = _log(tmp_path, s0=b"".join(batches))
    ((position, message),) = _found(folder, "OFFSET_GAP")
    assert position == len(b"".join(batches[:2]))
    assert message.startswith("offsets from 6 to 8 are missing, and 1 more ranges;")
    assert len(_found_lost(folder)) == 1


def _found_lost(folder: Path) -> list[str]:
    return [one.symbol for one in ks.salvage(folder).problems if one.symbol == "CHECKSUM_MISMATCH"]


@pytest.mark.parametrize("lost", [0, 5])
def test_lost_bytes_at_either_end_of_a_segment_are_no_gap(lost: int, tmp_path: Path) -> None:
    batches = _batches(6)
    batches[lost][-1] ^= 1
    folder = _log(tmp_path, s0=b"".join(batches), s18=b"".join(_batches(2, 18)))
    assert _found(folder, "OFFSET_GAP") == []
    assert len(_found_lost(folder)) == 1


@pytest.mark.parametrize("index", [None, 0, 4096])
def test_a_last_segment_of_zeros_is_said(index: int | None, tmp_path: Path) -> None:
    """It is preallocated if its index is, too; otherwise its pages may never have been written."""
    folder = _log(tmp_path, s0=b"".join(_batches(6)), s18=bytes(4096))
    if index is not None:
        (folder / f"{18:020}.index").write_bytes(bytes(index))
    (found,) = ks.salvage(folder).problems
    assert (found.symbol, found.position, found.rows_missing) == ("ZERO_TAIL", 0, False)
    assert found.severity is (Severity.NOTE if index else Severity.WARNING)
    assert "contains no complete batch, only 4,096 zeros" in found.message


@pytest.mark.parametrize("is_large", [False, True])
def test_an_index_that_cannot_be_read_prevents_no_copy(is_large: bool, tmp_path: Path) -> None:
    folder = _log(tmp_path, s0=b"".join(_batches(6)), s18=bytes(4096))
    index = folder / f"{18:020}.index"
    if is_large:
        index.touch()
        os.truncate(index, 65 << 20)
    else:
        index.mkdir()
    copied = ks.salvage(folder, tmp_path / "copy")
    (found,) = copied.problems
    assert (found.symbol, found.severity) == ("ZERO_TAIL", Severity.WARNING)
    assert copied.partitions[0].destination == tmp_path / "copy"
    assert len(ks.read_records(tmp_path / "copy")) == 6 * _RECORDS


def test_a_segment_that_is_written_is_never_one_that_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _log(tmp_path, s0=b"".join(_batches(6)))

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(KeptOffsets, "add", fail)
    copied = ks.salvage(folder, tmp_path / "copy")
    assert isinstance(copied.partitions[0].error, MemoryError)
    assert copied.lost_bytes == 0


def test_a_damaged_checkpoint_of_several_partitions_is_one_problem(tmp_path: Path) -> None:
    batches = _batches(6)
    del batches[3]
    for number in range(3):
        folder = tmp_path / "ü 1" / f"orders-{number}"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    (tmp_path / "ü 1" / "cleaner-offset-checkpoint").write_text("nonsense")
    found = ks.salvage(tmp_path / "ü 1")
    symbols = [one.symbol for one in found.problems]
    assert sorted(symbols) == ["BAD_CHECKPOINT", *["OFFSET_GAP"] * 3]
    assert all(len(one.gaps) == 2 for one in found.partitions)


def test_a_last_segment_of_zeros_after_missing_offsets(tmp_path: Path) -> None:
    folder = _log(tmp_path, s0=b"".join(_batches(6)), s25=bytes(4096))
    (folder / f"{25:020}.index").write_bytes(bytes(4096))
    ((position, message),) = _found(folder, "OFFSET_GAP")
    assert (position, message.partition(";")[0]) == (0, "offsets from 18 to 24 are missing")


def test_zeros_after_the_last_batch_are_a_note(tmp_path: Path) -> None:
    folder = _log(tmp_path, s0=b"".join(_batches(6)) + bytes(4096))
    (found,) = ks.salvage(folder).problems
    assert (found.symbol, found.severity) == ("ZERO_TAIL", Severity.NOTE)


def test_zeros_in_the_middle_are_a_loss(tmp_path: Path) -> None:
    folder = _log(
        tmp_path, s0=b"".join(_batches(6)), s18=bytes(4096), s36=b"".join(_batches(2, 36))
    )
    (found,) = ks.salvage(folder).problems
    assert (found.symbol, found.rows_missing) == ("CUT_SEGMENT", True)
