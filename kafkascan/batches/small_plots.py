"""Small SVG plots of tables in notebooks: no scripts, bounded size, escaped text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import as_datetime64
from kafkascan.format.texts import printable

_BINS = 60
_MOST_BARS = 8
_BAR, _WIDTH, _HEIGHT = 8, 480, 64
_LABEL_SIZE = 40
# Later timestamps are damaged, and one of them would flatten the plot.
_LATEST = 253_402_300_800_000  # the year 10000


def plot_over_time(
    title: str, times: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> str:
    """
    Return a plot of counts, or of sums of weights, in equal parts of the time they span.

    Parameters
    ----------
    title : str
    times : ndarray of int64, shape (n,)
        In milliseconds since the epoch. Negative ones, and those after the year 9999, are left out.
    weights : ndarray of int64, shape (n,), optional
        Negative ones count as 0.

    Returns
    -------
    str
        An ``<svg>`` element; empty, if there are fewer than two different times.
    """
    is_shown = (times >= 0) & (times < _LATEST)
    shown = times[is_shown]
    if not len(shown) or shown.min() == shown.max():
        return ""
    sizes = None if weights is None else np.maximum(weights[is_shown], 0).astype(np.float64)
    heights, _ = np.histogram(shown.astype(np.float64), _BINS, weights=sizes)
    bounds = [str(time)[:19] for time in as_datetime64(np.array([shown.min(), shown.max()]))]
    left_out = len(times) - len(shown)
    suffix = f"; {left_out:,} without a time" if left_out else ""
    label = f"{title}, {bounds[0]} to {bounds[1]}; at most {int(heights.max()):,}{suffix}"
    largest = heights.max() or 1.0
    bars = "".join(
        f'<rect x="{index * _BAR}" y="{_HEIGHT - _length(height / largest, _HEIGHT)}"'
        f' width="{_BAR - 1}" height="{_length(height / largest, _HEIGHT)}"/>'
        for index, height in enumerate(heights.tolist())
        if height
    )
    return _figure(label, _HEIGHT, bars)


def plot_amounts(title: str, amounts: Mapping[str, int]) -> str:
    """
    Return a plot with a bar for each of the largest amounts, and their names.

    Parameters
    ----------
    title : str
    amounts : mapping of str to int
        Not negative, by name.

    Returns
    -------
    str
        An ``<svg>`` element; empty, if there are fewer than two amounts.
    """
    import html

    if len(amounts) < 2:
        return ""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    shown, others = ordered[:_MOST_BARS], len(ordered) - _MOST_BARS
    largest = max(1, shown[0][1])
    rows = "".join(
        f'<rect x="0" y="{index * 16 + 2}" width="{_length(amount / largest, 160)}" height="12"/>'
        f'<text x="168" y="{index * 16 + 12}" font-size="11">{amount:,}'
        f" {html.escape(_shortened(name))}</text>"
        for index, (name, amount) in enumerate(shown)
    )
    label = f"{title}; and {others:,} others" if others > 0 else title
    return _figure(label, len(shown) * 16, rows)


def _length(share: float, longest: int) -> int:
    """Return the length of a bar: visible, however short it is."""
    return max(1, round(share * longest))


def _shortened(name: str) -> str:
    name = printable(name[: _LABEL_SIZE + 1])
    return name if len(name) <= _LABEL_SIZE else f"{name[: _LABEL_SIZE - 1]}…"


def _figure(label: str, height: int, shapes: str) -> str:
    """Return shapes in the colour of the text, so that they are visible in dark notebooks."""
    import html

    text = html.escape(printable(label))
    return (
        f'<figure style="margin: 0"><figcaption>{text}</figcaption>'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text}"'
        f' width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
        f' fill="currentColor"><title>{text}</title>{shapes}</svg></figure>'
    )
