"""Sweeps over sizes of batches and records: times per item, and as ratios to yardsticks.

`python -m benchmarks.sweep --plot ../docs/sweep.svg` also draws them. A cliff is a point that takes
over 1.3 times as long as the line through its neighbours, or than an operation's yardstick where
that does the same work. Times are minima of CPU time, because sweeps take minutes, in which other
processes come and go. Cliffs are measured again, with their neighbours, and keep their least times:
noise goes away, a cliff stays.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import kafkascan as ks

from . import corpora, yardsticks

BATCH_SIZES = [round(64 * 1.25**step) for step in range(44)]
RECORDS_PER_BATCH = (1, 2, 5, 10, 20, 50, 100, 1_000, 10_000)
RECORD_SIZES = (1, 10, 32, 100, 316, 1_000, 3_162, 10_000, 100_000)
SEGMENT_SIZE = 1 << 26
CLIFF = 1.3
_REPETITIONS = 3
_MOST_RECORDS, _LARGEST_BATCH = 200_000, 1 << 24

WALK, TOUCH, COPY = "plain walk in C", "touch every line", "copy into fresh memory"


class Point(NamedTuple):
    """What one operation takes at one size."""

    series: str
    operation: str
    size: int
    ns: float
    yardstick: float


def minima(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least CPU time of each contender in seconds; they take turns."""
    least = dict.fromkeys(contenders, math.inf)
    for _, (name, function) in itertools.product(range(rounds), contenders.items()):
        start = time.process_time()
        function()
        least[name] = min(least[name], time.process_time() - start)
    return least


def batch_points(batch_size: int, varied: bool, rounds: int) -> Iterator[Point]:
    """Measure what reads headers or bytes of batches, over a map whose pages are there."""
    path = corpora.segment(batch_size, varied=varied, size=SEGMENT_SIZE)
    folder = corpora.partition(path)
    source = ks.Source(path)
    data, memory = source.as_array(), np.fromfile(path, np.uint8)
    batches = ks.scan_batches(source).batches
    rows = np.ones((len(batches) + 1, yardsticks.ROW_SIZE), np.uint8)
    stamped, times = [batches], itertools.count(1)

    def restamp() -> None:
        """Another time in each round, so that every checksum is computed again."""
        stamped[0] = ks.rewrite.restamp_in_place(memory, stamped[0], max_timestamp=next(times))

    operations: dict[str, tuple[str, Callable[[], object]]] = {
        "scan_batches": (WALK, lambda: ks.scan_batches(source, threads=1)),
        "iter_batches": (WALK, lambda: [None for _ in ks.iter_batches(source)]),
        "audit of headers": (WALK, lambda: ks.audit(folder, verify=False, threads=1)),
        "verify_crcs": (TOUCH, lambda: ks.verify_crcs(source, batches, threads=1)),
        "restamp_in_place": (TOUCH, restamp),
    }
    yards = {
        WALK: lambda: yardsticks.plain_walk(data, rows),
        TOUCH: lambda: yardsticks.touch(data),
    }
    series = f"batches, {'varying' if varied else 'alike'}"
    yield from _points(series, batch_size, operations, yards, len(batches), rounds)
    shutil.rmtree(folder)
    path.unlink()


def record_points(per_batch: int, record_size: int, rounds: int) -> Iterator[Point]:
    """Measure what reads or writes records without keys, in memory."""
    count = min(_MOST_RECORDS, SEGMENT_SIZE // (record_size + 8))
    count = max(per_batch, count // per_batch * per_batch)
    ends = np.arange(count + 1, dtype=np.int64) * record_size
    content = np.random.default_rng(61).bytes(int(ends[-1]))
    values = [None, pa.py_buffer(ends), pa.py_buffer(content)]
    columns = {
        "offset": np.arange(count),
        "timestamp": np.arange(count) + 1_714_000_000_000,
        "value": pa.Array.from_buffers(pa.large_binary(), count, values),
    }

    def build() -> bytearray:
        return ks.build_batches(columns, max_records=per_batch, batch_size=1 << 30)

    log = build()
    data = np.frombuffer(log, np.uint8)
    batches = ks.scan_batches(log).batches

    def arrow() -> None:
        for table in ks.iter_records(log, batches):
            table.to_arrow()

    operations: dict[str, tuple[str, Callable[[], object]]] = {
        "iter_records": (TOUCH, lambda: [None for _ in ks.iter_records(log, batches)]),
        "iter_records, to_arrow": (COPY, arrow),
        "build_batches": (COPY, build),
    }
    yards = {TOUCH: lambda: yardsticks.touch(data), COPY: lambda: bytearray(log)}
    series = f"records of {record_size:,} B, by records per batch"
    yield from _points(series, per_batch, operations, yards, count, rounds)


def _points(
    series: str,
    size: int,
    operations: dict[str, tuple[str, Callable[[], object]]],
    yards: dict[str, Callable[[], object]],
    count: int,
    rounds: int,
) -> Iterator[Point]:
    contenders = yards | {name: function for name, (_, function) in operations.items()}
    seconds = minima(contenders, rounds)
    for name, (yardstick, _) in operations.items():
        ns, bound = (seconds[one] / count * 1e9 for one in (name, yardstick))
        yield Point(series, name, size, ns, bound)


def sweep(rounds: int = 5) -> list[Point]:
    """Measure all points, and cliffs again; segments exist only while they are measured."""
    measures: list[Callable[[], Iterator[Point]]] = [
        partial(batch_points, size, varied, rounds)
        for varied, size in itertools.product((True, False), BATCH_SIZES)
    ]
    measures += [
        partial(record_points, per_batch, record_size, rounds)
        for record_size, per_batch in itertools.product(RECORD_SIZES, RECORDS_PER_BATCH)
        if record_size * per_batch <= _LARGEST_BATCH
    ]
    found = [list(measure()) for measure in measures]
    for _ in range(_REPETITIONS):
        places = _places_of_cliffs(found)
        for place in places:
            again = measures[place]()
            found[place] = [
                one._replace(ns=min(one.ns, two.ns), yardstick=min(one.yardstick, two.yardstick))
                for one, two in zip(found[place], again, strict=True)
            ]
    return [point for points in found for point in points]


def _places_of_cliffs(found: list[list[Point]]) -> list[int]:
    """Return the indices of the sizes at which a line has a cliff, and of their neighbours."""
    place_of = {
        (point.series, point.size): place for place, points in enumerate(found) for point in points
    }
    steep = {
        place_of[point.series, point.size]
        for line in by_line([point for points in found for point in points]).values()
        for point, _ in cliffs(line)
    }
    return sorted({near for place in steep for near in range(place - 1, place + 2)})


def by_line(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """Group points by series and operation."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.series, point.operation), []).append(point)
    return lines


def cliffs(line: list[Point]) -> list[tuple[Point, float]]:
    """Return the points of a line that are above that through their neighbours, with the ratio."""
    found = []
    for before, point, after in zip(line, line[1:], line[2:], strict=False):
        share = math.log(point.size / before.size) / math.log(after.size / before.size)
        ratio = point.ns / (before.ns ** (1 - share) * after.ns**share)
        if ratio > CLIFF:
            found.append((point, ratio))
    return found


def show(points: list[Point]) -> None:
    """Print times per item and ratios to yardsticks, and the cliffs."""
    lines = by_line(points)
    for series in dict.fromkeys(point.series for point in points):
        names = [name for one, name in lines if one == series]
        print(f"\nsweep of {series}: ns per item (x its yardstick)")
        print(f"{'':>10}" + "".join(f"{name:>26}" for name in names))
        for row in zip(*(lines[series, name] for name in names), strict=True):
            cells = (f"{one.ns:,.1f} ({one.ns / one.yardstick:.2f} x)" for one in row)
            print(f"{row[0].size:>10,}" + "".join(f"{cell:>26}" for cell in cells))
    for (series, name), line in lines.items():
        for point, ratio in cliffs(line):
            print(f"cliff: {name}, {series}, {point.size:,}: {ratio:.2f} x its neighbours")


def plot(points: list[Point], path: str) -> None:
    """Draw one chart for each series; dashed lines are yardsticks."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "sweep", "svg.fonttype": "none"}
    from matplotlib import pyplot

    lines = by_line(points)
    series = list(dict.fromkeys(point.series for point in points))
    figure, charts = pyplot.subplots(
        math.ceil(len(series) / 2), 2, figsize=(14, 4 * math.ceil(len(series) / 2)), squeeze=False
    )
    for chart, one in zip(charts.flat, series, strict=False):
        for name in (name for other, name in lines if other == one):
            line = lines[one, name]
            drawn = chart.loglog([p.size for p in line], [p.ns for p in line], label=name)
            bound = [p.yardstick for p in line]
            chart.loglog([p.size for p in line], bound, "--", color=drawn[0].get_color(), alpha=0.4)
        chart.set_title(one)
        chart.set_ylabel("ns per batch" if one.startswith("batches") else "ns per record")
        chart.legend(fontsize=7)
        chart.grid(alpha=0.3)
        chart.minorticks_off()
    for chart in charts.flat[len(series) :]:
        chart.remove()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    if path.endswith(".svg"):
        _shorten(Path(path))


def _shorten(svg: Path) -> None:
    """Write a chart with one decimal, without comments, metadata and line breaks in paths."""
    unseen = r"<!--.*?-->|<metadata>.*?</metadata>"
    text = re.sub(unseen, "", svg.read_text(), flags=re.DOTALL)
    text = re.sub(r' d="[^"]*"', lambda path: " " + " ".join(path[0].split()), text)
    text = re.sub(r"(\d+\.\d)\d+", r"\1", text)
    svg.write_text(re.sub(r"\s*\n\s*", "\n", text))


def main(arguments: list[str] | None = None) -> None:
    """Print the sweeps."""
    parser = argparse.ArgumentParser(description="Sweep over sizes of batches and records.")
    parser.add_argument("--plot", metavar="FILE", help="Also draw them into an SVG or PNG file.")
    parser.add_argument("--rounds", type=int, default=5, help="Rounds of measurement.")
    options = parser.parse_args(arguments)
    points = sweep(options.rounds)
    show(points)
    if options.plot:
        plot(points, options.plot)


if __name__ == "__main__":
    main()
