from typing import Any

SMALLEST_OUTPUT: int

class BatchPrinter:
    row: int
    end: int
    needed: int
    def __init__(
        self,
        rows: Any,
        is_valid: Any,
        addresses: Any,
        sizes: Any,
        buffer_index: Any,
        position: Any,
        size: Any,
        owner: object,
        *,
        prints_metadata: bool,
        prints_data: bool,
    ) -> None: ...
    def fill(self, out: Any) -> tuple[int, int]: ...
    def offsets(self) -> tuple[int, int, list[tuple[int, int]]] | None: ...
