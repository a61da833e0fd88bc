"""Indexes in remote storage as hints for scans of its logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.errors import SourceReadError
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.tiered.tier_files import SyntheticFile
from kafkascan.tiered.tier_segments import TierFolder
from tests.spark.logs import plain_batch
from tests.support.recorded_objects import RecordedObject, UsualCost

NAME = "00000000000000000000"
LOG = b"".join(plain_batch(offset, 1, 500_000) for offset in range(30))
INDEX = ks.build_offset_index(ks.scan_batches(LOG).batches, base_offset=0).tobytes()


@dataclass
class StoredLog:
    """A log in a store; a `TierFile`."""

    stored: RecordedObject
    size: int = len(LOG)

    def source(self) -> SourceLike:
        return PrefetchingReader(self.stored, cost=UsualCost())

    def read(self) -> bytes:
        raise NotImplementedError


class UnreadableIndex(SyntheticFile):
    """An index whose request fails; a `TierFile`."""

    def read(self) -> bytes:
        raise SourceReadError("index", 0, "the store is busy")


def scan(stored: RecordedObject, index: SyntheticFile | None) -> bytes:
    files = {f"{NAME}.log": StoredLog(stored)} | ({} if index is None else {f"{NAME}.index": index})
    source = TierFolder(Path("topic-0"), files).source(f"{NAME}.log")
    return ks.scan_batches(source).batches.tobytes()


def test_an_index_of_a_tier_lets_a_scan_request_headers_ahead() -> None:
    stored = RecordedObject(LOG, together=10)
    assert scan(stored, SyntheticFile(INDEX)) == ks.scan_batches(LOG).batches.tobytes()
    assert stored.requested_bytes < 0.03 * len(LOG)
    assert stored.most_in_flight >= 10


@pytest.mark.parametrize("index", [UnreadableIndex(INDEX), SyntheticFile(b""), None])
def test_a_tier_without_an_index_that_can_be_read(index: SyntheticFile | None) -> None:
    assert scan(RecordedObject(LOG), index) == ks.scan_batches(LOG).batches.tobytes()
