"""One log read by several threads: the same rows and end as one walk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core.batches import guess
from kafkascan.batches import collecting
from tests.support.segments import batch_v2, message_v1

LOG = [batch_v2(bytes(500 + i % 700), base_offset=i, crc=1) for i in range(6000)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_BYTES_PER_PART", 1 << 16)


def assert_threads_change_nothing(source: ks.SourceLike, **options: int) -> None:
    alone = ks.scan_batches(source, on_corrupt="stop", **options)
    for threads in (2, 3, 8):
        scan = ks.scan_batches(source, on_corrupt="stop", threads=threads, **options)
        assert scan.batches.tobytes() == alone.batches.tobytes()
        assert (scan.end, scan.valid_bytes, scan.trailing_bytes, scan.start) == (
            alone.end, alone.valid_bytes, alone.trailing_bytes, alone.start,
        )  # fmt: skip
        assert str(scan.error) == str(alone.error)


def test_a_clean_log() -> None:
    assert_threads_change_nothing(b"".join(LOG))
    position = sum(map(len, LOG[:100]))
    assert_threads_change_nothing(b"".join(LOG), start=position, stop=3_000_000)


def test_the_next_batch_is_guessed_from_any_byte() -> None:
    """A guess needs three batches in a row, with ascending offsets."""
    log = b"".join(batch_v2(bytes(100), base_offset=10 + i) for i in range(20))
    for position, found in ((0, 0), (1, 161), (161, 161), (162, 322), (17 * 161, 17 * 161)):
        assert guess(log, position, len(log), -1) == found
    assert guess(log, 17 * 161 + 1, len(log), -1) == -1
    # Batches that start at the limit do not count, nor offsets that do not follow.
    assert (guess(log, 1, 161, -1), guess(log, 1, 162, -1)) == (-1, 161)
    assert (guess(log, 0, len(log), 9), guess(log, 0, len(log), 10)) == (0, 161)
    assert guess(log, 0, len(log), 29) == -1
    assert guess(b"\xff" * 1000, 0, 1000, -1) == -1
    for position in (-1, len(log) - 61, len(log), 2 * len(log)):
        assert guess(log, position, len(log), -1) == -1


def test_parts_are_walked_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = []
    one_walk = collecting._walk
    monkeypatch.setattr(
        collecting, "_walk", lambda *arguments: walked.append(arguments[1]) or one_walk(*arguments)
    )
    ks.scan_batches(b"".join(LOG), threads=4)
    assert len(walked) == 4
    assert len(set(walked)) == 4


@pytest.mark.parametrize("tail", [b"", bytes(5000), LOG[0][:100], b"\xff" * 200])
@pytest.mark.parametrize("at", [0.3, 0.5, 0.9, 1.0])
def test_damage_and_tails(at: float, tail: bytes) -> None:
    log = b"".join(LOG)
    cut = int(len(log) * at)
    assert_threads_change_nothing(log[:cut] + tail + log[cut:] * (at < 0.8))


@pytest.mark.parametrize("seed", range(8))
def test_payloads_that_mislead_the_guess(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fake = b"".join(batch_v2(b"x", base_offset=10**6 + i, crc=1) for i in range(500))
    parts = [
        batch_v2(fake if rng.random() < 0.5 else bytes(900), base_offset=i, crc=1)
        for i in range(200)
    ]
    assert_threads_change_nothing(b"".join(parts))


@pytest.mark.parametrize("shift", [0, 7])
def test_legacy_parts_start_at_index_entries(tmp_path: Path, shift: int) -> None:
    parts = [message_v1(None, bytes(900 + i % 50), offset=i) for i in range(3000)]
    positions = np.cumsum([0, *map(len, parts)])[:-1][::4]
    entries = np.stack([np.arange(len(positions)) * 4, positions + shift], 1).astype(">i4")
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    path.with_suffix(".index").write_bytes(entries.tobytes())
    assert_threads_change_nothing(path)
