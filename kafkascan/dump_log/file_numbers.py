"""Numbers in the names of files."""

from __future__ import annotations

from pathlib import Path


def offset_of_name(path: Path) -> int:
    """
    Return the base offset in the name of a file.

    Raises
    ------
    ValueError
        If the name does not begin with one.
    """
    digits = path.name.partition(".")[0]
    if not digits.isdecimal():
        raise ValueError(f"{path}: the name does not begin with an offset")
    return int(digits)
