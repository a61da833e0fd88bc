from typing import Any

SUM_STEP: int
DAMAGED_IN_A_ROW: int

class Searcher:
    def __init__(self, sums: Any, legacy_sums: Any) -> None: ...
    def find(
        self,
        window: Any,
        window_start: int,
        source_size: int,
        position: int,
        limit: int,
        lowest: int,
        highest: int,
        any_header: bool = False,
    ) -> tuple[int, int]: ...
    def skip_damage(
        self,
        source: Any,
        position: int,
        last_damage: int,
        stop: int,
        lowest: int,
        highest: int,
        verifies_all: bool,
        least_reach: int,
        most_reach: int,
        rows: Any,
        ranges: Any,
    ) -> tuple[int, int, int, int, int]: ...

def sums_for(size: int) -> int: ...
def crc_of_range(
    data: Any, start: int, first: int, last: int, room: Any, is_legacy: bool = False
) -> int: ...
def heaviest_ascending(
    below: Any,
    rank: Any,
    weight: Any,
    link: Any,
    best: Any,
    chosen: Any,
    before: Any,
    total: Any,
    keep: Any,
) -> None: ...
