from typing import Any

def build_into(
    rows: Any, base_offset: int, interval: int, offsets: Any, times: Any
) -> tuple[int, int, int, int]: ...
