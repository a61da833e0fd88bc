from typing import Any

class Records:
    count: int
    def __init__(
        self,
        offset: Any,
        timestamp: Any,
        key: Any,
        value: Any,
        header_starts: Any,
        header_key: Any,
        header_value: Any,
        owners: object,
        source: Any = None,
    ) -> None: ...

def plan(
    records: Records,
    magic: int,
    is_compressed: bool,
    batch_size: int,
    batch_records: int,
    base_timestamp: int | None,
    starts: Any,
    sizes: Any,
) -> tuple[int, int, int]: ...
def measure(records: Records, rows: Any, starts: Any, sizes: Any) -> tuple[int, int]: ...
def addresses_of_bytes(items: list[Any], addresses: Any, sizes: Any) -> int: ...
def addresses_of_offsets(
    offsets: Any, start: int, size: int, addresses: Any, sizes: Any
) -> bool: ...
def size_of_record(
    magic: int,
    timestamp: int,
    base_timestamp: int,
    offset_delta: int,
    key_size: int,
    value_size: int,
    header_sizes: list[int],
) -> int: ...
def size_before_records(magic: int, is_compressed: bool) -> int: ...
