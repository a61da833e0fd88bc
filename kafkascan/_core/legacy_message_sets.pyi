from typing import Any

def locate_wrapped(data: Any, magic: Any, start: Any, size: Any) -> None: ...
def count_wrapped(
    addresses: Any,
    sizes: Any,
    buffer: Any,
    position: Any,
    size: Any,
    is_wrapper: Any,
    count: Any,
) -> tuple[int, int]: ...
