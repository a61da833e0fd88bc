"""The state of producers, and what they did on the way to it: one loop for all that is asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_rows, next_offset
from kafkascan.producers import LOG_PLACE, PRODUCER_ORDER, ProducerState, RefusedBatchError
from kafkascan.transactions import TRANSACTION, ControlRows, TransactionState

_UNORDERED = np.zeros(1, PRODUCER_ORDER)
for _name in (
    "producer_id", "producer_epoch", "last_sequence", "last_seen_ms", "first_epoch",
    "first_gap", "first_duplicate", "first_fenced",
):  # fmt: skip
    _UNORDERED[_name] = -1


class ProducerTrails(ProducerState):
    """
    The producers of a log, what is in their transactions, and how their batches were ordered.

    Parameters
    ----------
    entries : array of PRODUCER_ENTRY, optional
        What a snapshot says.
    log : int
        Its number, for the rows of transactions.
    expiration_ms : int, optional
        The broker's ``producer.id.expiration.ms``, to judge the order of batches by; None if
        nobody asks for that.
    """

    def __init__(
        self,
        entries: NDArray[np.void] | None = None,
        log: int = 0,
        expiration_ms: int | None = None,
    ) -> None:
        super().__init__(entries)
        self._log = log
        self._ended: list[NDArray[np.void]] = []
        self._spans = _begun_before(self._entries)
        if expiration_ms is not None:
            self._orders = np.repeat(_UNORDERED, self._count)
            self._place = np.array([(-1, 0, expiration_ms)], LOG_PLACE)
        # The loop tells by a table's length whether it is asked for: none may be empty.
        self._make_room(self._count)

    @property
    def judges_order(self) -> bool:
        """Whether the order of batches is asked for."""
        return len(self._place) > 0

    def _make_room(self, capacity: int) -> None:
        super()._make_room(capacity)
        self._spans = _grown(self._spans, len(self._entries))
        if self.judges_order:
            self._orders = _grown(self._orders, len(self._entries))

    def _take_spans(self, spans: NDArray[np.void]) -> None:
        self._ended.append(spans)

    def follow(self, batches: BatchTable, control: ControlRows, path: str) -> None:
        """
        Apply batches, as `apply_read`; behind one that Kafka refuses, go on with their order.

        Raises
        ------
        RefusedBatchError
        """
        if not self._is_known:
            return self._follow_order(batches, control)
        try:
            self.apply_read(batches, control, path)
        except RefusedBatchError as refused:
            self._is_known = False
            self._follow_order(batches[refused.row :], control.between(refused.row, len(batches)))
            raise
        return None

    def _follow_order(self, batches: BatchTable, control: ControlRows) -> None:
        if self.judges_order:
            self.apply_read(batches, ControlRows(control.rows, control.markers, {}), "")

    def pass_over(self, batches: BatchTable) -> None:
        """Leave batches out that no producer wrote, and that lack no offset between them."""
        if self.judges_order:
            place = self._place[0]
            place["holes"] += 0 <= place["next_offset"] != batches["base_offset"][0]
            place["next_offset"] = next_offset(batches[-1:])[0]

    def take_ended(self) -> NDArray[np.void]:
        """Return the transactions that ended since this was asked last, in order."""
        ended = join_rows(self._ended, TRANSACTION)
        ended["log"] = self._log
        self._ended = []
        return ended

    def open_spans(self) -> NDArray[np.void]:
        """Return what is in the transactions that are open, by their first offsets."""
        is_open = self._spans["state"][: self._count] == TransactionState.OPEN
        rows = np.flatnonzero(is_open)
        opened = self._spans.take(rows)
        opened["log"] = self._log
        opened["coordinator_epoch"] = self._entries["coordinator_epoch"][rows]
        by_offset: NDArray[np.void] = np.sort(opened, order=("first_offset", "producer_id"))
        return by_offset

    def first_open_offset(self) -> int | None:
        """Return where the first of the open transactions begins."""
        if not self._open_count:
            return None
        is_open = self._spans["state"][: self._count] == TransactionState.OPEN
        offsets = self._spans["first_offset"][: self._count][is_open]
        return int(offsets.min()) if len(offsets) else None

    def orders(self) -> NDArray[np.void]:
        """Return the PRODUCER_ORDER of each producer that wrote something."""
        found = self._orders[: self._count]
        return found[found["producer_id"] >= 0]


def _grown(table: NDArray[np.void], size: int) -> NDArray[np.void]:
    if len(table) >= size:
        return table
    grown = np.empty(size, table.dtype)
    grown[: len(table)] = table
    return grown


def _begun_before(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Return the transactions that are open by a snapshot, by entry."""
    spans = np.zeros(len(entries), TRANSACTION)
    spans["state"] = -1
    rows = np.flatnonzero(
        (entries["producer_id"] >= 0) & (entries["current_txn_first_offset"] >= 0)
    )
    known = entries.take(rows)
    begun = np.zeros(len(rows), TRANSACTION)
    begun["state"] = TransactionState.OPEN
    begun["first_offset"] = known["current_txn_first_offset"]
    begun["last_timestamp"] = known["timestamp"]
    for name in ("producer_id", "producer_epoch", "last_offset", "coordinator_epoch"):
        begun[name] = known[name]
    for name in ("marker_offset", "last_stable_offset", "first_timestamp"):
        begun[name] = -1
    spans[rows] = begun
    return spans
