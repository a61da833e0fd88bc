"""CRC-32C of bytes: Kafka's checksum since magic 2, by the fastest kernel at hand."""

from __future__ import annotations

import os
from typing import Any

from kafkascan._core import checksums as _core
from kafkascan.errors import SourceReadError


def crc32c(data: Any, value: int = 0, /) -> int:
    """
    CRC-32C (Castagnoli) of bytes.

    Parameters
    ----------
    data : bytes-like
        Anything with a contiguous buffer of bytes.
    value : int, default 0
        CRC-32C of the bytes before, so that ``crc32c(b, crc32c(a)) == crc32c(a + b)``.

    Returns
    -------
    int
        In ``[0, 2**32)``.
    """
    crc, fault = _core.crc32c(data, value)
    if fault >= 0:
        raise SourceReadError("<buffer>", fault, "a mapped byte could not be read")
    return crc


def crc32c_implementation() -> str:
    """
    Name of the CRC-32C kernel in use.

    It is chosen at import: the fastest that the CPU has, or the one that the environment
    variable ``KAFKASCAN_CRC32C`` names.
    """
    return _core.implementation()


def crc32c_implementations() -> tuple[str, ...]:
    """Names of the CRC-32C kernels that this build and this CPU have, slowest first."""
    return _core.implementations()


def choose_implementation() -> None:
    """
    Choose the kernel for the life of the process.

    Raises
    ------
    ValueError
        If ``KAFKASCAN_CRC32C`` names none of `crc32c_implementations`.
    """
    name = os.environ.get("KAFKASCAN_CRC32C")
    try:
        _core.choose(name or None)
    except ValueError as error:
        raise ValueError(f"KAFKASCAN_CRC32C: {error}") from None


choose_implementation()
