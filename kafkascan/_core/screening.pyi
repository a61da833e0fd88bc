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

def screen(
    rows: Any, next_offset: int, epoch: int, earliest: int, latest: int, largest: int
) -> int: ...
