from collections.abc import Sequence
from typing import Any

OPS: dict[str, int]
MAX_COLUMNS: int
MAX_TAGS: int
SLACK: int

def frames_into(
    source: Any,
    addresses: Any,
    sizes: Any,
    is_framed: bool,
    types: Any,
    versions: Any,
    starts: Any,
) -> tuple[int, int]: ...

class MessageDecoder:
    def __init__(
        self, program: Any, first: Any, is_flexible: Any, columns_count: int, must_end: bool
    ) -> None: ...
    def decode(
        self,
        source: Any,
        addresses: Any,
        sizes: Any,
        starts: Any,
        program_of: Any,
        is_done: Any,
        counts: Any,
        columns: Sequence[tuple[Any, Any, Any, Any]] | None = None,
    ) -> tuple[int, int]: ...
