from typing import Any

class HeaderWalk:
    done: int
    key_bytes: int
    value_bytes: int
    nulls: int
    is_finished: bool

    def __init__(
        self,
        addresses: Any,
        sizes: Any,
        buffer_of_batch: Any,
        batch: Any,
        headers_position: Any,
        headers_count: Any,
    ) -> None: ...
    def measure(self, most: int) -> tuple[int, int]: ...
    def copy(
        self,
        most: int,
        key_starts: Any,
        keys: Any,
        value_starts: Any,
        values: Any,
        is_null: Any,
    ) -> tuple[int, int]: ...
    def locate(
        self, most: int, key_addresses: Any, key_sizes: Any, value_addresses: Any, value_sizes: Any
    ) -> tuple[int, int]: ...
