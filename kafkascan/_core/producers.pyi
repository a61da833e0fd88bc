from typing import Any

def apply_into(
    rows: Any,
    markers: Any,
    entries: Any,
    count: int,
    slots: Any,
    opened: Any,
    open_count: int,
    completed: Any,
    spans: Any,
    ended_spans: Any,
    orders: Any,
    place: Any,
    is_known: bool,
) -> tuple[int, int, int, int, int, int, int]: ...
def merge_into(news: Any, entries: Any, count: int, slots: Any) -> int: ...
def index_entries(entries: Any, count: int, slots: Any) -> None: ...
