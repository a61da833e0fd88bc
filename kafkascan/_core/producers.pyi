from typing import Any

def apply_into(
    rows: Any,
    markers: Any,
    entries: Any,
    count: int,
    slots: Any,
    open_slots: Any,
    completed: Any,
) -> tuple[int, int, int, int, int]: ...
def merge_into(news: Any, entries: Any, count: int, slots: Any) -> int: ...
def index_entries(entries: Any, count: int, slots: Any) -> None: ...
