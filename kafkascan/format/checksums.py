"""CRC-32C, the checksum of magic 2, with the fastest kernel of the CPU."""

from __future__ import annotations

import os
from typing import Any

from kafkascan._core import checksums as _core
from kafkascan.format.errors import SourceReadError


def crc32c(data: Any, value: int = 0, /) -> int:
    """
    CRC-32C (Castagnoli) of bytes.

    Parameters
    ----------
    data : bytes-like
        Any object with a contiguous buffer.
    value : int, default 0
        CRC-32C of the bytes before, so that ``crc32c(b, crc32c(a)) == crc32c(a + b)``.

    Returns
    -------
    int
        In ``[0, 2**32)``.

    Raises
    ------
    ValueError
        If `value` is not in ``[0, 2**32)``.
    """
    try:
        crc, fault = _core.crc32c(data, value)
    except OverflowError:
        raise ValueError(f"value {value} is not the CRC-32C of any bytes") from None
    if fault >= 0:
        raise SourceReadError("<buffer>", fault, "mapped bytes could not be read")
    return crc


def crc32c_implementation() -> str:
    """
    Name of the CRC-32C kernel in use.

    It is chosen at import: the fastest one that the CPU supports, or the one that the
    environment variable ``KAFKASCAN_CRC32C`` names.
    """
    return _core.implementation()


def crc32c_implementations() -> tuple[str, ...]:
    """Names of the CRC-32C kernels that the build and the CPU support, slowest first."""
    return _core.implementations()


def choose_implementation() -> None:
    """
    Choose the kernel of the process.

    Raises
    ------
    ValueError
        If ``KAFKASCAN_CRC32C`` is not one of `crc32c_implementations`.
    """
    name = os.environ.get("KAFKASCAN_CRC32C")
    try:
        _core.choose(name or None)
    except ValueError as error:
        raise ValueError(f"KAFKASCAN_CRC32C: {error}") from None


choose_implementation()
