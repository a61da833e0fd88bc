from typing import Any

min_record_size: int

def check_rows(source: Any, rows: Any) -> tuple[int, int, int]: ...
def decode_into(
    addresses: Any,
    sizes: Any,
    rows: Any,
    payload_buffer: Any,
    payload_position: Any,
    payload_size: Any,
    is_wrapper: Any,
    first_record: Any,
    columns: dict[str, Any],
    first_batch: int,
    stop_batch: int,
) -> tuple[int, int, int, int]: ...
def count_entries(messages: Any) -> tuple[int, int]: ...
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
def views_into(
    addresses: Any,
    sizes: Any,
    buffer_of_batch: Any,
    batch: Any,
    position: Any,
    size: Any,
    first_piece: Any,
    piece_bits: int,
    views: Any,
) -> tuple[int, int]: ...
def headers_into(
    addresses: Any,
    sizes: Any,
    buffer_of_batch: Any,
    batch: Any,
    headers_position: Any,
    headers_count: Any,
    header_batch: Any,
    key_position: Any,
    key_size: Any,
    value_position: Any,
    value_size: Any,
) -> tuple[int, int]: ...
