"""Golden segments: they agree with the reference reader and cover the formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support import reference

GOLDEN = Path(__file__).parent
SEGMENTS = sorted(
    path.relative_to(GOLDEN)
    for path in GOLDEN.glob("*/data/*/*")
    if ks.format.parse_segment_name(path.name) is not None
)


def test_golden_segments_exist() -> None:
    assert len(SEGMENTS) >= 60


@pytest.mark.parametrize("segment", SEGMENTS, ids=str)
def test_the_reference_reader_agrees(segment: Path) -> None:
    log = (GOLDEN / segment).read_bytes()
    scan, reading = ks.scan_batches(log), reference.read(log)
    assert [tuple(row) for row in scan.batches.tolist()] == reading.rows
    assert (scan.end, scan.valid_bytes) == (reading.end, reading.valid_bytes)
    assert all(reference.crc_is_valid(log, row) for row in reading.rows)
    tables = list(ks.iter_batches(GOLDEN / segment, rows=3))
    assert np.array_equal(np.concatenate([scan.batches[:0], *tables]), scan.batches)


def test_the_corpus_covers_the_format() -> None:
    """The headers of all batches have every feature of the format."""
    batches = np.concatenate([ks.scan_batches(GOLDEN / one).batches for one in SEGMENTS])
    assert set(batches["magic"].tolist()) == {0, 1, 2}
    for magic, codecs in ((0, {0, 1, 2, 3}), (1, {0, 1, 2, 3}), (2, {0, 1, 2, 3, 4})):
        assert (
            set(ks.batches.compression_type(batches[batches["magic"] == magic]).tolist()) == codecs
        )
    assert set(ks.batches.timestamp_type(batches).tolist()) == {-1, 0, 1}
    assert ks.batches.is_transactional(batches).any()
    assert ks.batches.is_control(batches).any()
    assert (ks.batches.delete_horizon_ms(batches) > 0).any()
    assert ((batches["records_count"] == 0) & (batches["magic"] == 2)).any()
    assert len(set(batches["partition_leader_epoch"].tolist())) >= 4
    ends = {ks.scan_batches(GOLDEN / one).end for one in SEGMENTS}
    assert ends == {"CLEAN", "ZERO_TAIL"}
