from typing import Any

PROGRESS_SIZE: int

def build_into(
    rows: Any, base_offset: int, interval: int, offsets: Any, times: Any
) -> tuple[int, int, int, int]: ...
def screen_entries(
    rows: Any, offsets: Any, times: Any, base_offset: int, progress: Any
) -> tuple[bool, bool, int]: ...
