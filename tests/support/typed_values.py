"""Values that a program decodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafkascan.schemas.programs.program_runs import Program, decode_values


def decoded(
    program: Program, first_step: int, values: Sequence[bytes]
) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return what kafkascan decodes, and the statuses."""
    # Each value has memory of its own, so that a sanitizer sees what is read behind its end.
    kept = [np.frombuffer(one, np.uint8).copy() if one else np.zeros(1, np.uint8) for one in values]
    sizes = np.array([len(one) for one in values], np.int32)
    address = np.array([one.ctypes.data for one in kept], np.uintp)
    arrays, status, _ = decode_values(
        program, address, sizes, np.full(len(values), first_step, np.int32),
        np.empty(0, np.uint8), lambda position: AssertionError(position),
    )  # fmt: skip
    found = pa.concat_arrays(arrays)
    found.validate(full=True)
    return found, status
