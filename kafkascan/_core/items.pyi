from collections.abc import Iterator
from typing import Any

from kafkascan.format.layout import TimestampType

def measure_items(size: Any) -> tuple[int, int]: ...
def gather_into(
    addresses: Any,
    sizes: Any,
    buffer_of_batch: Any,
    batch: Any,
    position: Any,
    size: Any,
    out: Any,
    starts: Any,
) -> tuple[int, int]: ...

class GatheredItems:
    def __init__(self, data: Any, starts: Any, is_null: Any) -> None: ...
    def __len__(self) -> int: ...
    def to_list(self) -> list[bytes | None]: ...

class Record:
    offset: int | None
    timestamp: int | None
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    sequence: int | None
    batch: int

    def __init__(
        self,
        offset: int | None,
        timestamp: int | None,
        timestamp_type: TimestampType,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
        sequence: int | None,
        batch: int,
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def _asdict(self) -> dict[str, Any]: ...

def sequences_into(batches: Any, batch: Any, offset: Any, out: Any) -> None: ...

class RecordRows(Iterator[Record]):
    def __init__(
        self,
        batches: Any,
        batch: Any,
        types: tuple[TimestampType, ...],
        offset: Any,
        timestamp: Any,
        key: GatheredItems | None,
        value: GatheredItems | None,
        headers: list[list[tuple[bytes, bytes | None]]] | None,
    ) -> None: ...
    def __next__(self) -> Record: ...

def views_into(
    addresses: Any,
    sizes: Any,
    buffer_of_batch: Any,
    batch: Any,
    position: Any,
    size: Any,
    first_block: Any,
    block_bits: int,
    views: Any,
) -> tuple[int, int]: ...
def addresses_into(
    addresses: Any,
    sizes: Any,
    buffer_of_batch: Any,
    batch: Any,
    position: Any,
    size: Any,
    out: Any,
) -> tuple[int, int]: ...
