from typing import Any

ABORT: int
COMMIT: int
NO_RECORD: int
NO_MARKER: int
UNREADABLE: int
UNREAD: int

marker_row: memoryview

def read_into(source: Any, rows: Any, found: Any, markers: Any) -> tuple[int, int, int]: ...
