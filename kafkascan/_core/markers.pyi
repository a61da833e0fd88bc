from typing import Any

UNREAD: int

def read_into(source: Any, rows: Any, found: Any, markers: Any) -> tuple[int, int, int]: ...
