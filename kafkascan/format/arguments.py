"""Checks of arguments that several functions share."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

_LARGEST = (1 << 63) - 1


def require_integers(**numbers: object) -> None:
    """
    Refuse what is not an integer of 64 bits.

    Parameters
    ----------
    **numbers : object
        The arguments by their names.

    Raises
    ------
    TypeError
    ValueError
        If an argument needs more than 64 bits.
    """
    for name, number in numbers.items():
        # `int` first: an isinstance check of a protocol takes longer than a small file.
        if not isinstance(number, (int, SupportsIndex)):
            raise TypeError(f"{name} must be an integer, not {type(number).__name__}")
        if not -_LARGEST - 1 <= operator.index(number) <= _LARGEST:
            raise ValueError(f"{name} {number} needs more than 64 bits")


def require_type(kind: type, **values: object) -> None:
    """
    Refuse what is not an instance of a type.

    Parameters
    ----------
    kind : type
    **values : object
        The arguments by their names.

    Raises
    ------
    TypeError
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            found = type(value).__name__
            raise TypeError(f"{name} must be of type {kind.__name__}, not {found}")


def require_items(kind: type, **lists: object) -> None:
    """
    Refuse what is not a collection of instances of a type; an iterator is consumed.

    Parameters
    ----------
    kind : type
    **lists : object
        The arguments by their names; None is accepted. Text and bytes are no collections here.

    Raises
    ------
    TypeError
    """
    for name, items in lists.items():
        if items is None:
            continue
        expected = f"{name} must be a collection of {kind.__name__}"
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise TypeError(f"{expected}, not {type(items).__name__}")
        for one in items:
            if not isinstance(one, kind):
                raise TypeError(f"{expected}, not of {type(one).__name__}")


def require_not_negative(**numbers: int | None) -> None:
    """
    Refuse numbers below 0, and those that need more than 64 bits.

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
        if number is None:
            continue
        require_integers(**{name: number})
        if number < 0:
            raise ValueError(f"{name} must not be negative")
