from typing import Any

from kafkascan._core.packing import Output, Packer
from kafkascan._core.record_columns import Records

def write_batches(
    records: Records,
    rows: Any,
    starts: Any,
    sizes: Any,
    first: int,
    last: int,
    position: int,
    out: Output,
) -> tuple[int, int]: ...
def compress_batches(
    records: Records,
    rows: Any,
    starts: Any,
    sizes: Any,
    first: int,
    last: int,
    position: int,
    out: Output,
    packer: Packer,
) -> tuple[int, int]: ...
