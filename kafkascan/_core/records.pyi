from typing import Any

min_record_size: int

def check_rows(source: Any, rows: Any) -> tuple[int, int, int]: ...
def end_of_group(rows: Any, first: int, most_bytes: int, most_records: int) -> int: ...
def has_control_batches(rows: Any) -> bool: ...
def locate_payloads(
    rows: Any, position: Any, size: Any, count: Any, is_wrapper: Any, codec: Any
) -> None: ...
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
