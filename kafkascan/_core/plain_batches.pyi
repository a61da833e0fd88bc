from typing import Any

def count_plain_records(rows: Any, source_size: int) -> int: ...
def decode_plain(
    source: Any,
    rows: Any,
    columns: dict[str, Any],
    row: int,
    stop: int,
    record: int,
    enough: int,
) -> tuple[int, int, bool]: ...
