"""Plot the batches of data directories: bytes of each topic by codec, and batch sizes by codec.

    python examples/plots.py FOLDER OUT.svg

FOLDER contains data directories as <broker>/data, as tests/golden does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import kafkascan as ks

TOPICS = 12
# Colours that differ in brightness, too; the order of codecs is that of the legend.
COLOURS = {
    "none": "#4c6a92", "gzip": "#d98c3f", "snappy": "#7bb274", "lz4": "#b0413e", "zstd": "#2f2a4a",
}  # fmt: skip
STYLE = {
    "svg.hashsalt": "kafkascan",
    "font.size": 9,
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


def read_batches(folder: Path) -> pd.DataFrame:
    """Return topic, codec and size of every batch."""
    columns = ["topic", "compression_type", "size_in_bytes"]
    tables = [ks.scan_log_dir(data).to_pandas()[columns] for data in sorted(folder.glob("*/data"))]
    return pd.concat(tables, ignore_index=True)


def plot(batches: pd.DataFrame) -> Figure:
    """Draw both plots side by side."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    topics, sizes = figure.subplots(1, 2, width_ratios=(1.2, 1))
    stored = batches.pivot_table(
        index="topic", columns="compression_type", values="size_in_bytes", aggfunc="sum",
        observed=True, fill_value=0,
    )  # fmt: skip
    stored = stored.loc[stored.sum(axis=1).nlargest(TOPICS).index[::-1]]
    codecs = [codec for codec in COLOURS if codec in stored]
    left = np.zeros(len(stored))
    for codec in codecs:
        topics.barh(stored.index, stored[codec] / 1000, left=left, color=COLOURS[codec])
        left += stored[codec].to_numpy() / 1000
    topics.set_title("Bytes of each topic", loc="left")
    topics.set_xlabel("kB")
    edges = 2.0 ** np.arange(5, 16.5, 0.5)
    by_codec = [batches.size_in_bytes[batches.compression_type == codec] for codec in codecs]
    sizes.hist(
        by_codec, edges, stacked=True, label=codecs, color=[COLOURS[codec] for codec in codecs]
    )
    sizes.set_xscale("log", base=2)
    sizes.set_xticks([64, 256, 1024, 4096, 16384], ["64 B", "256 B", "1 KiB", "4 KiB", "16 KiB"])
    sizes.set_title("Number of batches by size", loc="left")
    sizes.legend(title="codec", frameon=False)
    return figure


def main() -> None:
    """Write the picture."""
    folder, out = map(Path, sys.argv[1:])
    with matplotlib.rc_context(STYLE):
        plot(read_batches(folder)).savefig(out, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
