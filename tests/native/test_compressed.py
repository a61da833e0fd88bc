"""Blocks of compressed batches at the end of the readable memory."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import snappy

import kafkascan as ks
from tests.support.records import RecordV2
from tests.support.segments import batch_v2

XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


@pytest.mark.parametrize("missing", [1, 4, 8])
def test_a_snappy_block_that_claims_more_bytes_than_there_are_is_not_read(
    page: np.ndarray, missing: int
) -> None:
    block = snappy.compress(RecordV2(value=bytes(range(40))).encode())
    payload = XERIAL_HEADER + struct.pack(">i", len(block)) + block[:-missing]
    log = batch_v2(payload, attributes=2, records_count=1)
    at_the_end = page[-len(log) :]
    at_the_end[:] = np.frombuffer(log, np.uint8)
    batches = ks.scan_batches(at_the_end).batches
    with pytest.raises(ks.InvalidRecordError):
        ks.read_records(at_the_end, batches)
