"""Memory whose bounds nothing may exceed."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    """Return a page of noise between two pages that may not be read."""
    memory = mmap.mmap(-1, 3 * mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    pages = np.frombuffer(memory, np.uint8)
    readable = pages[mmap.PAGESIZE : 2 * mmap.PAGESIZE]
    readable[:] = np.random.default_rng(4096).integers(0, 256, mmap.PAGESIZE, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for number in (0, 2):
        start = ctypes.c_void_p(pages.ctypes.data + number * mmap.PAGESIZE)
        assert protect(start, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return readable
