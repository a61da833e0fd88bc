"""SVG plots with the colours of the page, in its light and dark mode.

Matplotlib draws with placeholder colours, which are replaced by CSS variables. Text stays text
in the SVG, and names are escaped.
"""

from __future__ import annotations

import datetime
import html
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.texts import printable
from kafkascan.report.facts import Facts, largest

_INK, _FAINT, _PAPER = "#010203", "#010204", "#010205"
_SERIES = tuple(f"#0102{number:02x}" for number in range(16, 24))
_VARIABLES = {_INK: "ink", _FAINT: "faint", _PAPER: "paper"} | {
    color: f"series-{number}" for number, color in enumerate(_SERIES, 1)
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _FAINT,
    "grid.linewidth": 0.4,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_SIZE = (4.7, 3.0)
# The colour and the pattern of each codec, the same in all plots.
_CODECS = {"none": "", "gzip": "////", "snappy": "....", "lz4": "\\\\\\\\", "zstd": "xxxx"}
# Bars whose lengths differ more than this get a logarithmic axis.
_MANY_DECADES = 1000
_MAX_SERIES, _MAX_POINTS = len(_SERIES) - 1, 1000
# A run of empty bins is cut out of a plot over time if it is this part of the bins or more, and so
# many; what marks it is so wide. Dates below the plot.
_GAP, _SHORTEST_GAP, _CUT, _TICKS = 0.25, 8, 0.06, 4
_DAY = 86_400_000


def draw(facts: Facts, producers: dict[str, list[Any]]) -> list[tuple[str, str, str]]:
    """
    Draw all plots for which there are data.

    Parameters
    ----------
    facts : Facts
    producers : dict of str to list
        Columns of a `ProducerCensus`.

    Returns
    -------
    list of (str, str, str)
        Title, sentence and SVG of each plot.
    """
    plots: list[tuple[str, str, Callable[[Any], object] | None]] = [
        (
            "Bytes over time",
            f"By the max_timestamp of each batch, in UTC; long gaps are cut out.{_left_out(facts)}",
            _over_time(facts),
        ),
        ("Batch sizes", "Number of batches by size and codec.", _batch_sizes(facts)),
        ("Codecs", "Bytes stored with each codec, by topic.", _codecs(facts)),
        (
            "Timestamps along the log",
            "A straight line is a steady rate. Steps are pauses, dips are timestamps out of order.",
            _timelines(facts),
        ),
        ("Producers", "Bytes written by each producer.", _producers(producers)),
        (
            "Batching",
            "Bytes and records per batch of each producer. Producers at the lower left gain from a"
            " larger linger.ms.",
            _batching(producers),
        ),
    ]
    return [
        (title, sentence, _svg(title, sentence, paint))
        for title, sentence, paint in plots
        if paint is not None
    ]


def _left_out(facts: Facts) -> str:
    count = facts.implausible_times
    if not count:
        return ""
    return f" {count:,} batches without a plausible timestamp are left out."


def _svg(title: str, sentence: str, paint: Callable[[Any], object]) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {**_STYLE, "svg.hashsalt": title}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _embeddable(out.getvalue(), title, sentence)


def _embeddable(svg: str, title: str, sentence: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The page sets the size; a prefix makes ids unique among the plots.
    label = html.escape(f"{title}: {sentence}")
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
                 r'<svg viewBox="\1" role="img" xmlns:xlink="http://www.w3.org/1999/xlink"'
                 rf' aria-label="{label}"><title>{html.escape(title)}</title>',
                 svg, count=1)  # fmt: skip
    prefix = re.sub(r"\W", "-", title.lower())
    for before_id in (' id="', "url(#", 'href="#'):
        svg = svg.replace(before_id, f"{before_id}{prefix}-")
    for color, name in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg


# ---- over time -------------------------------------------------------------------------------


def _over_time(facts: Facts) -> Callable[[Any], object] | None:
    topics = {name: bins for name, bins in facts.times.items() if bins.sizes}
    if not topics:
        return None
    width = max(bins.width for bins in topics.values())
    for bins in topics.values():
        bins.widen_to(width)
    first = min(min(bins.sizes) for bins in topics.values())
    last = max(max(bins.sizes) for bins in topics.values())
    while last - first >= 200:
        width *= 2
        for bins in topics.values():
            bins.widen_to(width)
        first, last = first // 2, last // 2
    order = [name for name, _ in largest({t: sum(b.sizes.values()) for t, b in topics.items()},
                                         _MAX_SERIES - 1)]  # fmt: skip
    counts = {
        name: np.array([bins.sizes.get(n, 0) for n in range(first, last + 1)], float)
        for name, bins in topics.items()
    }
    shown = [(name, counts[name]) for name in order if name in counts]
    rest = [count for name, count in counts.items() if name not in order]
    if rest:
        shown.append((f"{len(rest)} others", np.sum(rest, axis=0)))

    parts = _parts(np.flatnonzero(np.sum([count for _, count in shown], axis=0)))

    def paint(axes: Any) -> None:
        bottom = np.zeros(last - first + 1)
        for color, (name, count) in zip(_SERIES, shown, strict=False):
            for place, (begin, end) in parts.items():
                bins = slice(begin, end + 1)
                edges = place + np.arange(end - begin + 2)
                # A border keeps a bin visible that is narrower than a pixel.
                axes.stairs((bottom + count)[bins], edges, baseline=bottom[bins], fill=True,
                            facecolor=color, edgecolor=color, linewidth=0.5,
                            label=None if place else _short(name))  # fmt: skip
            bottom += count
        _cut_time_axis(axes, parts, lambda number: (first + number) * width)
        axes.set_ylim(0)
        _bytes_axis(axes.yaxis)
        _legend(axes, len(shown))

    return paint


def _parts(used: NDArray[np.intp]) -> dict[float, tuple[int, int]]:
    """Return the bins between long gaps, each from the first to the last, by their place."""
    cuts = np.flatnonzero(np.diff(used) > max(_SHORTEST_GAP, _GAP * (used[-1] - used[0])))
    begins, ends = np.append(used[0], used[cuts + 1]), np.append(used[cuts], used[-1])
    sizes = ends - begins + 1
    places = np.append(0, np.cumsum(sizes + _CUT * sizes.sum())[:-1])
    bounds = zip(begins.tolist(), ends.tolist(), strict=True)
    return dict(zip(places.tolist(), bounds, strict=True))


def _cut_time_axis(
    axes: Any, parts: dict[float, tuple[int, int]], time_of: Callable[[int], int]
) -> None:
    """Label the times of the parts, and mark the gaps between them."""
    ticks: dict[float, str] = {}
    last, total = 0.0, sum(end - begin + 1 for begin, end in parts.values())
    for place, (begin, end) in parts.items():
        size = end - begin + 1
        if place:
            axes.axvline((last + place) / 2, color=_FAINT, linestyle=(0, (2, 2)), linewidth=1.5)
        count = max(1, round(_TICKS * size / total))
        for number in range(count):
            at = begin + size * number // count
            ticks[place + at - begin] = _time_text(time_of(at), time_of(end + 1) - time_of(begin))
        last = place + size
    axes.set_xlim(0, last)
    axes.set_xticks(list(ticks), list(ticks.values()), ha="left" if len(parts) > 1 else "center")


def _time_text(milliseconds: int, span: int) -> str:
    """Return a time as precisely as a span of milliseconds needs it."""
    text = str(np.datetime64(milliseconds, "ms"))
    if span > 3 * _DAY:
        return text[:10]
    return f"{text[:10]}\n{text[11:16] if span > 10 * 60_000 else text[11:19]}"


def _timelines(facts: Facts) -> Callable[[Any], object] | None:
    logs = [log for log in facts.logs if len(log.timeline.offsets) > 1]
    logs = sorted(logs, key=lambda log: -log.size)[: _MAX_SERIES + 1]
    if not logs:
        return None

    def paint(axes: Any) -> None:
        for color, log in zip(_SERIES, logs, strict=False):
            first, last = min(log.timeline.offsets), max(log.timeline.offsets)
            along = [100 * (one - first) / max(1, last - first) for one in log.timeline.offsets]
            axes.plot(along, _dates(np.array(log.timeline.times)), color=color, linewidth=1.2,
                      label=_short(log.name))  # fmt: skip
        axes.set_xlim(0, 100)
        axes.set_xlabel("position in the log, in % of its offsets")
        _time_axis(axes.yaxis)
        _legend(axes, len(logs))

    return paint


def _dates(milliseconds: Any) -> Any:
    """Return times for the axes, clipped to the range of the calendar."""
    latest = int(datetime.datetime(9998, 1, 1, tzinfo=datetime.UTC).timestamp() * 1000)
    return np.clip(milliseconds, 0, latest).astype("datetime64[ms]")


def _time_axis(axis: Any) -> None:
    from matplotlib import dates

    untyped: Any = dates
    locator = untyped.AutoDateLocator(minticks=3)
    axis.set_major_locator(locator)
    axis.set_major_formatter(untyped.ConciseDateFormatter(locator))


# ---- sizes and codecs ------------------------------------------------------------------------


def _batch_sizes(facts: Facts) -> Callable[[Any], object] | None:
    sizes = facts.sizes
    found = {name: sizes[name] for name in _codec_order(sizes)}
    if not found:
        return None
    used = np.flatnonzero(np.sum(list(found.values()), axis=0))
    bins = np.arange(used[0], used[-1] + 1)

    def paint(axes: Any) -> None:
        edges = 2.0 ** (np.append(bins, bins[-1] + 1) / 2)
        bottom = np.zeros(len(bins))
        for name, count in found.items():
            axes.stairs(bottom + count[bins], edges, baseline=bottom, fill=True, label=name,
                        **_codec_style(name))  # fmt: skip
            bottom += count[bins]
        axes.set_xscale("log")
        axes.set_ylim(0)
        axes.set_ylabel("batches")
        _bytes_axis(axes.xaxis)
        _legend(axes, len(found))

    return paint


def _codecs(facts: Facts) -> Callable[[Any], object] | None:
    codec_sizes = facts.codec_sizes()
    totals = {topic: of.total() for topic, of in codec_sizes.items()}
    if not totals:
        return None
    topics = [name for name, _ in sorted(totals.items(), key=lambda one: -one[1])[:10]]
    codecs = _codec_order({codec for topic in topics for codec in codec_sizes[topic]})

    def paint(axes: Any) -> None:
        places, left = np.arange(len(topics)), np.zeros(len(topics))
        for codec in codecs:
            sizes = np.array([codec_sizes[topic][codec] for topic in topics], float)
            axes.barh(places, sizes, left=left, label=codec, height=0.7, **_codec_style(codec))
            left += sizes
        _bars(axes, topics)
        _legend(axes, len(codecs))

    return paint


def _codec_order(names: Iterable[str]) -> list[str]:
    """Return codecs in the order of their codes, unknown ones last."""
    known = list(_CODECS)
    return sorted(names, key=lambda name: (known.index(name) if name in known else 9, name))


def _codec_style(name: str) -> dict[str, Any]:
    """Return the colour and the pattern of a codec."""
    number = list(_CODECS).index(name) if name in _CODECS else len(_SERIES) - 1
    return {
        "facecolor": _SERIES[number],
        "edgecolor": _PAPER,
        "hatch": _CODECS.get(name, "||"),
        "linewidth": 0,
    }


# ---- producers -------------------------------------------------------------------------------


def _producers(columns: dict[str, list[Any]]) -> Callable[[Any], object] | None:
    sizes = _bytes_by_producer(columns)
    if not sizes:
        return None
    shown = largest(sizes, 10)

    def paint(axes: Any) -> None:
        values = [size for _, size in shown]
        axes.barh(np.arange(len(shown)), values, color=_SERIES[0], height=0.7)
        smallest = max(1, min(values))
        if max(values) > _MANY_DECADES * smallest:
            axes.set_xscale("log")
            axes.set_xlim(smallest / 2)
            axes.set_xlabel("bytes, logarithmic")
        _bars(axes, [name for name, _ in shown])

    return paint


def _bytes_by_producer(columns: dict[str, list[Any]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for producer, size in zip(columns["producer_id"], columns["size_in_bytes"], strict=True):
        name = "no producer id" if producer < 0 else f"producer {producer}"
        sizes[name] = sizes.get(name, 0) + size
    return sizes


def _batching(columns: dict[str, list[Any]]) -> Callable[[Any], object] | None:
    batches = np.array(columns["batches"], float)
    records, sizes = np.array(columns["records"], float), np.array(columns["size_in_bytes"], float)
    is_known = (batches > 0) & (records > 0) & (sizes > 0)
    if not is_known.any():
        return None
    order = np.flatnonzero(is_known)[np.argsort(-sizes[is_known])]
    points = np.array([records[order], sizes[order]]) / batches[order]
    # Of points at the same place, the largest one.
    _, shown = np.unique(np.round(np.log10(points), 2), axis=1, return_index=True)
    shown = np.sort(shown)[:_MAX_POINTS]

    def paint(axes: Any) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        part = sizes[order[shown]] / sizes.max()
        axes.scatter(
            *points[:, shown],
            s=12 + 120 * part, color=_SERIES[0], alpha=0.6, linewidths=0.5, edgecolors=_PAPER,
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.set_xlabel("records per batch")
        axes.set_ylabel("bytes per batch")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(0.12)
        _bytes_axis(axes.yaxis)

    return paint


# ---- shared by all plots ---------------------------------------------------------------------


def _bars(axes: Any, names: list[str]) -> None:
    axes.set_yticks(np.arange(len(names)), [_short(name) for name in names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    _bytes_axis(axes.xaxis)


def _bytes_axis(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    else:
        decades = np.log10(axis.get_view_interval())
        few = decades[1] - decades[0] < 2
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if few else (1,)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: human_size(value)))


def human_size(size: float) -> str:
    """Return a size in bytes with a decimal unit, as tables of commands show it."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "B" or size == int(size) else f"{size:,.1f} {unit}"


def _legend(axes: Any, count: int) -> None:
    if count > 1:
        axes.figure.legend(loc="outside lower center", ncols=3, handlelength=1, columnspacing=1.2)


def _short(name: str) -> str:
    name = printable(name)
    # A leading underscore would hide a name from the legend.
    name = f" {name}" if name.startswith("_") else name
    return name if len(name) <= 18 else f"{name[:8]}…{name[-9:]}"
