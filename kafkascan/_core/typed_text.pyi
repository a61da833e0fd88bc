from collections.abc import Sequence
from typing import Any

ASCII: int
UTF8: int
KINDS: dict[str, int]

class TextColumns:
    def __init__(self, columns: Sequence[tuple[Any, ...]]) -> None: ...
    def write(self, first: int, ends: Any, out: Any, style: int) -> int: ...
