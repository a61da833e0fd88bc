"""The physical limits, measured in the same process: see yardsticks/yardsticks.c."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).parents[1] / "yardsticks" / "yardsticks.c"
ROW_SIZE = 80


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="kafkascan-yardsticks-") as folder:
        path = Path(folder) / "yardsticks.so"
        command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-o", path, SOURCE]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(str(path))
    library.plain_walk.restype = ctypes.c_int64
    library.read_walk.restype = ctypes.c_int64
    library.touch.restype = ctypes.c_uint64
    library.read_pages.restype = ctypes.c_int64
    return library


def plain_walk(data: np.ndarray, rows: np.ndarray) -> int:
    """Walk headers one after the other in C, into `rows` (80 bytes each); give their number."""
    return _library().plain_walk(
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_int64(data.size),
        ctypes.c_void_p(rows.ctypes.data),
    )


def read_walk(path: Path, rows: np.ndarray) -> int:
    """Read headers of a file one after the other in C, into `rows`; give their number."""
    return _library().read_walk(str(path).encode(), ctypes.c_void_p(rows.ctypes.data))


def read_headers(
    data: np.ndarray, positions: np.ndarray, rows: np.ndarray, ahead: int = 16
) -> None:
    """Read the headers at known positions into `rows`; each is requested so many before it."""
    contiguous = np.ascontiguousarray(positions, np.int64)
    _library().read_headers(
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_void_p(contiguous.ctypes.data),
        ctypes.c_int64(len(contiguous)),
        ctypes.c_int64(ahead),
        ctypes.c_void_p(rows.ctypes.data),
    )


def touch(data: np.ndarray) -> int:
    """Read one word of every cache line."""
    return _library().touch(ctypes.c_void_p(data.ctypes.data), ctypes.c_int64(data.size))


def read_pages(path: Path, positions: np.ndarray, in_flight: int) -> None:
    """Read the page of each position of a file from its disk, several at a time."""
    contiguous = np.ascontiguousarray(positions, np.int64)
    failed = _library().read_pages(
        str(path).encode(),
        ctypes.c_void_p(contiguous.ctypes.data),
        ctypes.c_int64(len(contiguous)),
        ctypes.c_int(in_flight),
    )
    if failed:
        raise OSError(f"{failed} pages of {path} cannot be read directly")
