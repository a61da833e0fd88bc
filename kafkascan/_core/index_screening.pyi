from typing import Any

PROGRESS_SIZE: int

def screen_entries(
    rows: Any, offsets: Any, times: Any, base_offset: int, progress: Any
) -> tuple[bool, bool, int]: ...
