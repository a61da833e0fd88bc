"""Checks of arguments that several functions share."""

from __future__ import annotations

import operator


def require_not_negative(**numbers: int | None) -> None:
    """
    Refuse numbers below 0.

    Parameters
    ----------
    **numbers : int or None
        The arguments by their names; None is accepted.

    Raises
    ------
    ValueError
    TypeError
        If an argument is not an integer.
    """
    for name, number in numbers.items():
        if number is not None and operator.index(number) < 0:
            raise ValueError(f"{name} must not be negative")
