from typing import Any

from numpy.typing import NDArray

def restamp_into(
    data: Any,
    rows: NDArray[Any],
    last_offsets: NDArray[Any] | None,
    leader_epochs: NDArray[Any] | None,
    max_timestamps: NDArray[Any] | None,
    timestamp_types: NDArray[Any] | None,
) -> tuple[int, int, int]: ...
