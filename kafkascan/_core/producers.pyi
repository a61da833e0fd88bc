from typing import Any

import numpy as np
from numpy.typing import NDArray

completed_transaction_row: memoryview
open_transaction_row: memoryview
producer_order_row: memoryview
transaction_row: memoryview

class LogCursor:
    def __init__(self, expiration_ms: int, of_clients: bool = True) -> None: ...
    def skip(self, first_offset: int, next_offset: int) -> None: ...

class ProducerTable:
    entries: NDArray[np.void]
    spans: NDArray[np.void] | None
    orders: NDArray[np.void] | None
    count: int
    def __init__(
        self,
        entries: NDArray[np.void],
        count: int,
        slots: NDArray[np.int32],
        opened: NDArray[np.void],
        spans: NDArray[np.void] | None = None,
        orders: NDArray[np.void] | None = None,
        cursor: LogCursor | None = None,
    ) -> None: ...
    def first_open_offset(self) -> int: ...

class Results:
    rows: int
    markers: int
    completed_count: int
    span_count: int
    def __init__(
        self, completed: NDArray[np.void], spans: NDArray[np.void] | None = None
    ) -> None: ...

def apply_into(
    table: ProducerTable, rows: Any, markers: Any, done: Results, *, order_only: bool = False
) -> int: ...
def merge_into(table: ProducerTable, entries: Any) -> None: ...
