"""Options of a record reader: columns, kinds of batches, limits and error handling."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.records import has_control_batches
from kafkascan.batches.columns import BatchTable, is_control
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import CorruptBatchError
from kafkascan.io.concurrency import require_threads
from kafkascan.records.record_table import (
    DEFAULT_RECORD_COLUMNS,
    RecordTable,
    stored_columns,
)

DEFAULT_MAX_DECOMPRESSED_SIZE = 1 << 28
"""Default of the bytes that one batch may decompress to: 256 MiB."""

Control: TypeAlias = Literal["skip", "only", "include"]
"""What a reader does with control batches: skip them, read them only, or read all batches."""

OnDamage: TypeAlias = Callable[[CorruptBatchError], object]
"""Receives the error of each batch whose records cannot be read, and which is skipped."""

Visible: TypeAlias = "Callable[[BatchTable], NDArray[np.bool_]]"
Wanted: TypeAlias = "Callable[[RecordTable], NDArray[np.bool_]]"


OnCorruptLog: TypeAlias = Literal["raise", "stop"]
"""What a reader of records does at damage: raise an error, or return what can be read."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """
    Validated options of `read_records` and `iter_records`.

    Parameters
    ----------
    columns, control, verify, threads, max_decompressed_size, batch_size, on_damage, on_corrupt
        See `iter_records`.
    visible : callable, optional
        Takes a batch table and returns a mask of the batches to read.
    wanted : callable, optional
        Takes a table of records and returns a mask of those to return.
    selects_few : bool
        Whether few batches are visible. The headers of an object in a store are then read without
        the bytes between them.
    also_stored : sequence of str
        Columns to decode besides the requested ones, such as those that `wanted` needs.

    Attributes
    ----------
    names : tuple of str
        The requested columns without duplicates.
    stored : tuple of str
        The columns to decode for them.
    """

    columns: Sequence[str] | None = None
    control: Control = "skip"
    verify: bool = False
    threads: int | None = None
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE
    batch_size: int = 65_536
    on_damage: OnDamage | None = None
    on_corrupt: OnCorruptLog = "raise"
    visible: Visible | None = None
    wanted: Wanted | None = None
    selects_few: bool = False
    also_stored: Sequence[str] = ()
    names: tuple[str, ...] = field(init=False)
    stored: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise TypeError("columns must be a sequence of names, not one name")
        names = DEFAULT_RECORD_COLUMNS if self.columns is None else dict.fromkeys(self.columns)
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "stored", stored_columns((*self.names, *self.also_stored)))
        if self.control not in ("skip", "only", "include"):
            raise ValueError(f"control must be 'skip', 'only' or 'include', not {self.control!r}")
        if self.on_corrupt not in ("raise", "stop"):
            raise ValueError(f"on_corrupt must be 'raise' or 'stop', not {self.on_corrupt!r}")
        require_threads(self.threads)
        require_integers(
            max_decompressed_size=self.max_decompressed_size, batch_size=self.batch_size
        )
        if self.max_decompressed_size < 1:
            raise ValueError("max_decompressed_size must be at least 1")
        # Codecs count up to sys.maxsize, and are given one byte more than the limit.
        limit = min(operator.index(self.max_decompressed_size), sys.maxsize - 1)
        object.__setattr__(self, "max_decompressed_size", limit)
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")

    @property
    def reads_few(self) -> bool:
        """Whether few batches are read, so that the bytes between headers are not needed."""
        return self.selects_few or self.control == "only"

    def select_records(self, records: RecordTable) -> RecordTable:
        """Return the records that are `wanted`."""
        if self.wanted is None:
            return records
        mask = self.wanted(records)
        return records if mask.all() else records[mask]

    def select(self, batches: BatchTable) -> BatchTable:
        """Return the batches to read: by `control`, and those that are `visible`."""
        if self.visible is None and (
            self.control == "include"
            or (self.control == "skip" and not has_control_batches(batches))
        ):
            return batches
        is_wanted = (
            np.ones(len(batches), np.bool_) if self.visible is None else self.visible(batches)
        )
        if self.control != "include":
            is_wanted = is_wanted & (is_control(batches) == (self.control == "only"))
        return batches if is_wanted.all() else batches.take(np.flatnonzero(is_wanted))
