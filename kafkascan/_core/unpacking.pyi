from collections.abc import Callable
from typing import Any

PIECE_SIZE: int

class Arena:
    pieces: list[Any]
    size: int
    def __init__(self, expected: int, take: Callable[[int], Any]) -> None: ...
    def put(self, parts: list[Any]) -> tuple[int, int, int]: ...

class Unpacker:
    def __init__(
        self,
        gunzip: Callable[..., bytes],
        snappy_into: Callable[..., int],
        lz4_into: Callable[..., int],
        unzstd: Callable[..., bytes],
        xxh32: Callable[..., int],
    ) -> None: ...
    def unpack(
        self,
        data: Any,
        starts: Any,
        sizes: Any,
        codecs: Any,
        arena: Arena,
        limit: int,
        enough: int,
        piece: Any,
        position: Any,
        size: Any,
    ) -> int: ...

def zstd_bounds(data: Any) -> tuple[int, int, int]: ...
