from typing import Any

def count_into(
    rows: Any,
    kinds: Any,
    counts: Any,
    used: int,
    slots: Any,
    next_offset: int,
    holes: int,
    expiration_ms: int,
) -> tuple[int, int, int, int, int]: ...
def index_counts(counts: Any, used: int, slots: Any) -> None: ...
