"""What a consumer with ``isolation.level=read_committed`` would see of a log.

A broker tells such a consumer which transactions were aborted, and nothing from the first
offset of an open one on (KIP-98). Both stand in the log: the marker that follows a producer's
batches says how their transaction ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, is_control, is_transactional, last_offset
from kafkascan.control import ControlRecordType
from kafkascan.records import iter_records
from kafkascan.sources import Source
from kafkascan.spark.files import FoundFile, open_file
from kafkascan.spark.options import Options
from kafkascan.spark.ranges import RangeWalk

_ROWS = 1 << 14
_LOGS_KEPT = 4
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class CommittedView:
    """
    How the transactions of a log ended.

    Attributes
    ----------
    last_stable_offset : int
        The first offset of a transaction that is open where the log ends.
    producer_ids, first_offsets, last_offsets : ndarrays of int64, shape (n,)
        The aborted transactions, by producer and offset.
    """

    last_stable_offset: int
    producer_ids: NDArray[np.int64]
    first_offsets: NDArray[np.int64]
    last_offsets: NDArray[np.int64]

    def mask(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Tell which batches the consumer gets to see."""
        seen: NDArray[np.bool_] = batches["base_offset"] < self.last_stable_offset
        rows = np.flatnonzero(is_transactional(batches) & ~is_control(batches) & seen)
        if len(rows) and len(self.producer_ids):
            seen[rows[self._are_aborted(batches[rows])]] = False
        return seen

    def _are_aborted(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Those that lie in the last aborted transaction of their producer before them."""
        aborted = np.zeros(len(batches), np.bool_)
        ends = last_offset(batches)
        for producer_id in np.unique(batches["producer_id"]):
            mine = np.flatnonzero(batches["producer_id"] == producer_id)
            first, last = np.searchsorted(self.producer_ids, [producer_id, producer_id + 1])
            at = first + np.searchsorted(self.first_offsets[first:last], ends[mine], "right") - 1
            is_known = at >= first
            known = mine[is_known]
            aborted[known] = batches["base_offset"][known] <= self.last_offsets[at[is_known]]
        return aborted


def committed_view(log: Sequence[FoundFile], options: Options) -> CommittedView:
    """
    Read the transactions of a log, from its headers and markers.

    Parameters
    ----------
    log : sequence of FoundFile
        All of its segments, in order.
    options : Options

    Raises
    ------
    CorruptBatchError
        If the log is damaged: what ends there, or was open, cannot be known.
    """
    key = tuple(log)
    if key not in _views:
        _views[key] = _read(key, options)
        while len(_views) > _LOGS_KEPT:
            _views.popitem(last=False)
    return _views[key]


# A worker gets the ranges of a log one after the other.
_views: OrderedDict[tuple[FoundFile, ...], CommittedView] = OrderedDict()


def _read(log: Sequence[FoundFile], options: Options) -> CommittedView:
    opened: dict[int, int] = {}  # by producer: the first offset of its open transaction
    aborted: list[tuple[int, int, int]] = []
    for file in log:
        source = open_file(file, options)
        walk = RangeWalk(source, 0, source.size)
        for table in walk.tables(_ROWS):
            rows = table[is_transactional(table)]
            if len(rows):
                _follow(rows, source, opened, aborted)
        if walk.error is not None:
            raise walk.error
    found = np.array(sorted(aborted), np.int64).reshape(-1, 3)
    return CommittedView(min(opened.values(), default=_NEVER), *found.T.copy())


def _follow(
    batches: BatchTable,
    source: Source,
    opened: dict[int, int],
    aborted: list[tuple[int, int, int]],
) -> None:
    markers = batches[is_control(batches)]
    kinds = dict(_marker_kinds(source, markers)) if len(markers) else {}
    for position, producer_id, base_offset, end in zip(
        batches["position"].tolist(),
        batches["producer_id"].tolist(),
        batches["base_offset"].tolist(),
        last_offset(batches).tolist(),
        strict=True,
    ):
        if position not in kinds:
            opened.setdefault(producer_id, base_offset)
            continue
        first = opened.pop(producer_id, None)
        if kinds[position] == ControlRecordType.ABORT and first is not None:
            aborted.append((producer_id, first, end))


def _marker_kinds(source: Source, markers: BatchTable) -> Iterator[tuple[int, int | None]]:
    """By position: the type of the first control record, None of a batch that has none left."""
    yield from dict.fromkeys(markers["position"].tolist(), None).items()
    tables = iter_records(source, markers, columns=["key"], control="only", verify=True)
    for records in tables:
        positions = records["position"]
        is_first = np.append(True, positions[1:] != positions[:-1])
        keys = records[is_first].items("key")
        for position, key in zip(positions[is_first].tolist(), keys, strict=True):
            # As ControlRecordType.parse: a short key is no marker that ends anything.
            kind = int.from_bytes(key[2:4], "big", signed=True) if key and len(key) >= 4 else None
            yield position, kind
