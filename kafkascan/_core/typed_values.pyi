from typing import Any

VALUES: int
ITEMS: int
LISTS: int
STRUCTS: int
AVRO_OPS: dict[str, int]
PROTOBUF_OPS: dict[str, int]
PROTOBUF_KINDS: dict[str, int]
JSON_OPS: dict[str, int]

class TypedColumns:
    count: int
    def __init__(self, layout: Any) -> None: ...
    def give(self, column: int, capacity: int, data: Any, ends: Any, is_valid: Any) -> None: ...
    def reached(self, column: int) -> tuple[int, int]: ...
    def entries(self, column: int) -> tuple[int, int]: ...
    def may_repeat_keys(self, column: int) -> bool: ...

def decode_into(
    columns: TypedColumns,
    steps: Any,
    parts: Any,
    constants: Any,
    address: Any,
    size: Any,
    first_step: Any,
    status: Any,
    place: Any,
    first: int,
    stop: int,
    source: Any,
) -> tuple[int, int, int, int, int]: ...
def decode_json_into(
    columns: TypedColumns,
    steps: Any,
    parts: Any,
    names: Any,
    address: Any,
    size: Any,
    first_step: Any,
    status: Any,
    place: Any,
    first: int,
    stop: int,
    source: Any,
) -> tuple[int, int, int, int, int]: ...
def decode_protobuf_into(
    columns: TypedColumns,
    messages: Any,
    fields: Any,
    parts: Any,
    address: Any,
    size: Any,
    first_step: Any,
    status: Any,
    place: Any,
    first: int,
    stop: int,
    source: Any,
) -> tuple[int, int, int, int, int]: ...
