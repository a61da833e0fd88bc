from typing import Any

OFFSETS: int
EPOCHS: int
TIMES: int
SIZES: int
COUNTS: int
FORMATS: int
PRODUCERS: int
TRANSACTIONS: int
CONTROL: int
TOTAL_COUNT: int

def screen(
    rows: Any, next_offset: int, epoch: int, earliest: int, latest: int, largest: int
) -> int: ...
def add_up(rows: Any, out: Any) -> None: ...
