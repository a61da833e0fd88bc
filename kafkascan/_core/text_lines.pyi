from collections.abc import Sequence
from typing import Any

NOTHING: int
NUMBER: int
NAME: int
TEXT: int
HEX: int
BASE64: int
BIG_ENDIAN: int
READY: int
MIXED: int
HEADER_KEYS: int
HEADERS: int

PLAIN: int
JSON: int
JAVA_JSON: int
CSV: int

MAX_PARTS: int
MAX_LITERAL: int

class LineForm:
    def __init__(
        self, parts: Sequence[tuple[Any, ...]], dialect: int = ..., end: bytes = ...
    ) -> None: ...

class LineWriter:
    end: int
    def __init__(
        self,
        head_forms: tuple[LineForm, ...],
        head_form: Any,
        line_forms: tuple[LineForm, ...],
        line_form: Any,
        first_line: Any,
        source: Any,
    ) -> None: ...
    def fill(self, out: Any, start: int) -> tuple[int, int]: ...

def java_text(data: Any) -> bytes: ...
