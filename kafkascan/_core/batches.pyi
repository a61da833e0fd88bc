from typing import Any

def scan_into(
    window: Any,
    window_start: int,
    source_size: int,
    position: int,
    stop: int,
    rows: Any,
    in_chains: bool = False,
    chain_steps: int = 512,
    first_steps: int = 64,
    smallest_batch: int = 512,
    largest_batch: int = 65536,
    known_starts: Any = None,
    keeps_gil: bool = False,
) -> tuple[int, int, int]: ...
def rows_of_headers(headers: Any, left: Any, rows: Any, are_framed: Any) -> None: ...
def guess(source: Any, position: int, limit: int, last_offset: int) -> int: ...
