from typing import Any

INDEXED_SIZE: int
PROGRESS_SIZE: int

def build_into(
    rows: Any,
    base_offset: int,
    interval: int,
    offsets: Any,
    times: Any,
    indexed: Any,
    is_last: bool,
) -> tuple[int, int, int, int]: ...
def screen_entries(
    rows: Any, offsets: Any, times: Any, base_offset: int, progress: Any
) -> tuple[bool, bool, int]: ...
