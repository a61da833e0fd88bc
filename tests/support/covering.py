"""Covering designs: few rows in which every two values of different fields stand together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def covering_rows(counts: Sequence[int], changed: int, seed: int = 0) -> Iterator[dict[int, int]]:
    """
    Yield rows until each value of each field has stood beside each value of each other field.

    Each row begins with the value that has the most pairs left, and takes the values that have the
    most pairs left with those before.

    Parameters
    ----------
    counts : sequence of int
        How many values each field has.
    changed : int
        Fields that a row has, at least 2; the others stay as they are.
    seed : int
        Chooses between values with as many pairs.

    Yields
    ------
    dict
        By the number of a field: the number of its value.
    """
    dice = np.random.default_rng(seed)
    field_of = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum([0, *counts])
    is_left = field_of[:, None] != field_of
    while is_left.any():
        row: list[int] = []
        is_free = np.ones(len(field_of), np.bool_)
        for _ in range(min(changed, len(counts))):
            gains = is_left[row or slice(None)].sum(axis=0) + dice.random(len(field_of))
            row.append(int(np.where(is_free, gains, -1).argmax()))
            is_free &= field_of != field_of[row[-1]]
        is_left[np.ix_(row, row)] = False
        yield {int(field_of[one]): int(one - first[field_of[one]]) for one in row}
