"""verify_crcs: results, and rows that do not match the source."""

from __future__ import annotations

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches import verify
from tests.support.cold_files import AlwaysReads
from tests.support.segments import Rig, message_v0, message_v1


@pytest.fixture(params=["memory", "mapped", "mapped but read", "read"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def open_log(log: bytes) -> ks.Source:
        if request.param == "memory":
            return ks.Source(log)
        if request.param == "mapped but read":
            monkeypatch.setattr(verify, "MapOrReads", AlwaysReads)
            monkeypatch.setattr(verify, "_BUFFER", 1 << 17)
            monkeypatch.setattr(verify, "_LEAST_MEASURED", 0)
        path = tmp_path / "0.log"
        path.write_bytes(log)
        return ks.Source(path, memory_map=request.param != "read")

    return open_log


def test_verdicts_per_batch(opened: Any) -> None:
    rig = Rig().batches(3).add(message_v1(b"k")).add(message_v0(b"k")).batches(2)
    rig.flip(1, 65).flip(4, 20)
    with opened(rig.log) as source:
        scan = ks.scan_batches(source)
        verdicts = ks.verify_crcs(source, scan.batches)
    assert verdicts.dtype == np.bool_
    assert verdicts.tolist() == [True, False, True, True, False, True, True]


def test_any_selection_in_any_order(opened: Any) -> None:
    rig = Rig().batches(100).flip(40, 62)
    with opened(rig.log) as source:
        batches = ks.scan_batches(source).batches
        assert ks.verify_crcs(source, batches[::-1]).tolist().index(False) == 59
        assert ks.verify_crcs(source, batches[[40, 3, 3, 40]]).tolist() == [
            False,
            True,
            True,
            False,
        ]
        assert ks.verify_crcs(source, batches[:0]).tolist() == []


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_threads_agree(opened: Any, threads: int | None) -> None:
    rng = np.random.default_rng(2)
    rig = Rig()
    for size in rng.integers(0, 600_000, 150):
        rig.batch(rng.bytes(int(size)))
    damaged = rng.choice(150, 20, replace=False)
    for index in damaged:
        rig.flip(int(index), int(rng.integers(21, rig.size_of(int(index)))))
    with opened(rig.log) as source:
        verdicts = ks.verify_crcs(source, ks.scan_batches(source).batches, threads=threads)
    assert sorted(np.flatnonzero(~verdicts)) == sorted(damaged)


@pytest.mark.parametrize(
    ("field", "value", "symbol"),
    [
        ("position", -1, "OUT_OF_BOUNDS"), ("position", 10**12, "OUT_OF_BOUNDS"),
        ("position", -(2**63), "OUT_OF_BOUNDS"), ("position", 2**63 - 1, "OUT_OF_BOUNDS"),
        ("position", 1, "MISMATCH"),
        ("batch_length", -100, "MISMATCH"), ("batch_length", 2**31 - 1, "MISMATCH"),
        ("batch_length", -(2**31), "MISMATCH"), ("batch_length", 50, "MISMATCH"),
        ("magic", 0, "MISMATCH"), ("magic", -1, "MISMATCH"), ("crc", 5, "MISMATCH"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("row", [0, 7, 9])
def test_rows_with_wrong_fields(opened: Any, field: str, value: int, symbol: str, row: int) -> None:
    with opened(Rig().batches(10).log) as source:
        batches = ks.scan_batches(source).batches
        batches[field][row] = value
        with pytest.raises(
            ks.format.BatchTableError, match=rf"batches\[{row}\].*{symbol}"
        ) as caught:
            ks.verify_crcs(source, batches)
        assert caught.value.row == row
        batches["crc"] ^= 1
        with pytest.raises(ks.format.BatchTableError):
            ks.verify_crcs(source, batches, threads=3)


def test_a_row_that_ends_after_the_source(opened: Any) -> None:
    log = Rig().batches(3).log
    batches = ks.scan_batches(log).batches
    with (
        opened(log[:-1]) as source,
        pytest.raises(ks.format.BatchTableError, match=r"batches\[2\]"),
    ):
        ks.verify_crcs(source, batches)


def test_rows_of_another_file(opened: Any) -> None:
    batches = ks.scan_batches(Rig().batches(3, b"one payload").log).batches
    with (
        opened(Rig().batches(30, b"other").log) as source,
        pytest.raises(ks.format.BatchTableError),
    ):
        ks.verify_crcs(source, batches)
    with opened(b"") as source, pytest.raises(ks.format.BatchTableError):
        ks.verify_crcs(source, batches)


def test_overlapping_rows_are_verified_independently(opened: Any) -> None:
    """A payload that contains a complete batch: rows of both are verified together."""
    inner = Rig().batch(b"inner").log
    rig = Rig().batch(b"padding" + inner + b"padding")
    at = 61 + len(b"padding")
    with opened(rig.log) as source:
        outer_rows = ks.scan_batches(source).batches
        inner_rows = ks.scan_batches(source, start=at, stop=at + 1).batches
        both = np.concatenate([outer_rows, inner_rows, outer_rows])
        assert ks.verify_crcs(source, both).tolist() == [True, True, True]


def test_other_arrays_are_rejected() -> None:
    log = Rig().batches(2).log
    batches = ks.scan_batches(log).batches
    aligned = np.dtype([(name, ks.BATCH_DTYPE[name]) for name in ks.BATCH_DTYPE.names], align=True)
    for wrong in (
        batches.astype(aligned), batches[["position", "crc"]], batches.reshape(1, 2),
        batches.tolist(), np.zeros(3), None,
    ):  # fmt: skip
        with pytest.raises(TypeError, match="BATCH_DTYPE"):
            ks.verify_crcs(log, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads"):
        ks.verify_crcs(log, batches, threads=0)


def test_a_strided_table() -> None:
    log = Rig().batches(9).flip(4, 64).log
    batches = ks.scan_batches(log).batches[::2]
    assert not batches.flags.c_contiguous
    assert ks.verify_crcs(log, batches).tolist() == [True, True, False, True, True]


def test_a_table_that_changes_while_a_large_batch_is_read(tmp_path: Path) -> None:
    """Another thread may change rows: reads are bounded by the bytes of the file."""
    path = tmp_path / "0.log"
    path.write_bytes(Rig().batch(bytes(30 << 20)).batch().log)
    batches = ks.scan_batches(path).batches
    original = batches.copy()
    stop = threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            for field in ("batch_length", "position", "magic", "crc"):
                batches[field] = 2**31 - 1 if field == "batch_length" else 1
                batches[field] = original[field]

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for memory_map in (False, True):
            with ks.Source(path, memory_map=memory_map) as source:
                for _ in range(30):
                    with contextlib.suppress(ks.format.BatchTableError):
                        ks.verify_crcs(source, batches)
    finally:
        stop.set()
        meddler.join()


@pytest.mark.parametrize("faults_of_a_call", [0, 1_000])
def test_reads_are_tried_where_a_map_takes_page_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults_of_a_call: int
) -> None:
    rig = Rig().batches(8_000, bytes(1_000)).flip(5_000, 100)
    path = tmp_path / "0.log"
    path.write_bytes(rig.log)
    faults, read = itertools.count(step=faults_of_a_call), []
    monkeypatch.setattr(verify, "page_faults", lambda: next(faults))
    monkeypatch.setattr(verify, "_BUFFER", 1 << 14)  # the bytes of the first measurement
    batches, original = ks.scan_batches(path).batches, ks.Source.read_into

    def read_into(source: ks.Source, position: int, out: memoryview) -> None:
        read.append(position)
        original(source, position, out)

    monkeypatch.setattr(ks.Source, "read_into", read_into)
    verdicts = ks.verify_crcs(path, batches, threads=1)
    assert np.flatnonzero(~verdicts).tolist() == [5_000]
    assert bool(read) == bool(faults_of_a_call)
