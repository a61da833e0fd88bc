from typing import Any

from kafkascan._core.producers import LogCursor

producer_amount_row: memoryview

def count_into(
    rows: Any, kinds: Any, counts: Any, used: int, slots: Any, cursor: LogCursor
) -> tuple[int, int, int]: ...
def index_counts(counts: Any, used: int, slots: Any) -> None: ...
