"""A scan of a file that is not cached returns the rows of a plain walk: any bytes, any index.

Walks treat the files as cold, whatever the page cache holds, with constants that are small enough
for all ways of reading headers to be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.io.source_protocols import FileRange
from tests.property.batches.test_chains import fake_batches, honest_log
from tests.support.cold_files import treat_as_cold
from tests.support.examples import examples, seeds
from tests.support.segments import batch_v2, message_v0, message_v1

NAME = "00000000000000000000"


@pytest.fixture(params=[0, 100, 2**40], ids=["single headers", "by batch size", "everything"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        treat_as_cold(patch, _LARGE_BATCH=request.param, _LARGE_GUESSED_BATCH=request.param)
        yield tmp_path


def facts(scan: Any) -> tuple[Any, ...]:
    error = None if scan.error is None else (type(scan.error), scan.error.position)
    return scan.end, scan.valid_bytes, scan.trailing_bytes, error


def write_index(folder: Path, positions: Any) -> None:
    entries = np.zeros(len(positions), OFFSET_INDEX_ENTRY)
    entries["position"] = np.asarray(positions, np.int64) & 0xFFFFFFFF
    (folder / f"{NAME}.index").write_bytes(entries.tobytes())


def assert_cold_is_warm(folder: Path, log: bytes, rows: int, start: int = 0) -> None:
    """Compare scans of a file with those of the same bytes in memory."""
    path = folder / f"{NAME}.log"
    path.write_bytes(log)
    warm = ks.scan_batches(log, start=start, on_corrupt="stop")
    for memory_map in (True, False):
        with ks.Source(path, memory_map=memory_map) as source:
            cold = ks.scan_batches(source, start=start, on_corrupt="stop")
            assert cold.batches.tobytes() == warm.batches.tobytes()
            assert facts(cold) == facts(warm)
            tables = ks.iter_batches(source, rows=rows, start=start, on_corrupt="stop")
            assert b"".join(table.tobytes() for table in tables) == warm.batches.tobytes()
            assert facts(tables) == facts(warm)


def wrong_indexes(rng: np.random.Generator, log: bytes, true: NDArray[np.int64]) -> list[Any]:
    """Return indexes: dense, sparse, shifted, into payloads, unsorted, repeated, random."""
    return [
        true,
        true[::5],
        true[::40],
        true[: len(true) // 3],
        true[::4] + int(rng.integers(-3, 4)),
        np.concatenate([true[::7], (true + 26)[rng.random(len(true)) < 0.3]]),
        rng.permutation(true),
        np.repeat(true[::9], 6),
        rng.integers(0, 2 * len(log) + 2, 300),
        rng.integers(-(2**31), 2**31, 300),
        [0] * 10,
    ]


def random_log(rng: np.random.Generator) -> list[bytes]:
    """Return batches of all formats, some with batches in their payloads."""
    parts = honest_log(rng, int(rng.integers(50, 400)))
    for index in rng.choice(len(parts), len(parts) // 6, replace=False).tolist():
        make = message_v1 if rng.random() < 0.5 else message_v0
        fake = fake_batches(rng, index)
        legacy = make(None, rng.bytes(int(rng.integers(0, 90))), offset=index)
        parts[index] = legacy if rng.random() < 0.3 else batch_v2(fake, base_offset=index, crc=0)
    return parts


@pytest.mark.parametrize("seed", seeds(12))
def test_logs_with_and_without_an_index(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = random_log(rng) if seed % 2 else honest_log(rng, 400, 1 << int(rng.integers(5, 12)))
    log = b"".join(parts)
    true = np.cumsum([0, *map(len, parts)])[:-1]
    assert_cold_is_warm(folder, log, 33)
    assert_cold_is_warm(folder, log, 1000, start=int(true[len(true) // 2]))
    for positions in wrong_indexes(rng, log, true):
        write_index(folder, positions)
        assert_cold_is_warm(folder, log, int(rng.integers(1, 500)))
    (folder / f"{NAME}.index").write_bytes(rng.bytes(4001))
    assert_cold_is_warm(folder, log[: int(rng.integers(0, len(log)))], 33)


@pytest.mark.parametrize("seed", seeds(20))
def test_damaged_logs(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(500 + seed)
    parts = random_log(rng)
    log = bytearray(b"".join(parts))
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(log) // 3, len(log)))
        damage = [bytes(30), rng.bytes(20), b"\xff" * 8, b"\x7f" * 12, fake_batches(rng, 9)]
        piece = damage[int(rng.integers(0, len(damage)))]
        log[at : at + len(piece)] = piece
    if rng.random() < 0.3:
        log += bytes(int(rng.integers(1, 5000)))
    write_index(folder, np.cumsum([0, *map(len, parts)])[:: int(rng.integers(1, 9))])
    assert_cold_is_warm(folder, bytes(log), 33)


@given(st.lists(st.integers(0, 80), max_size=120), st.data())
@examples(60)
def test_any_log_cut_and_overwritten_anywhere(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: Any
) -> None:
    parts = [batch_v2(b"\x02" * size, base_offset=i) for i, size in enumerate(sizes)]
    log = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(log)))
        piece = data.draw(st.binary(max_size=10) | st.sampled_from([b"", *parts]))
        log[at : at + len(piece)] = piece
    cut = bytes(log[: data.draw(st.integers(0, len(log)))])
    positions = data.draw(st.lists(st.integers(-1, len(cut) + 1), max_size=40))
    folder = tmp_path_factory.mktemp("cold")
    write_index(folder, positions)
    with pytest.MonkeyPatch.context() as patch:
        treat_as_cold(patch)
        assert_cold_is_warm(folder, cut, data.draw(st.sampled_from([1, 7, 64, 1000])))


def test_offsets_at_the_limits_of_their_type(folder: Path) -> None:
    low, high = -(2**63), 2**63 - 1
    parts = [batch_v2(b"x" * 40, base_offset=low)] * 80
    for index, offset in ((30, high), (45, high - 5), (60, -1), (70, 0)):
        parts[index] = batch_v2(
            b"x" * 40, base_offset=offset, last_offset_delta=2**31 - 1, records_count=1
        )
    assert_cold_is_warm(folder, b"".join(parts) * 3, 31)


def test_a_part_of_a_file(folder: Path) -> None:
    log = b"".join(honest_log(np.random.default_rng(8), 300))
    path = folder / "archive"
    path.write_bytes(b"before" + log + b"after")
    part = FileRange(str(path), 6, len(log), "archive: log")
    assert ks.scan_batches(part).batches.tobytes() == ks.scan_batches(log).batches.tobytes()
