from typing import Any

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
def bytes_of_items(data: Any, starts: Any, is_null: Any) -> list[bytes | None]: ...
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
