# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Batch headers in pandas and Polars
#
# A scan reads one row for each record batch of a segment: offsets, times, sizes, codec, producer.
# No record is read or decompressed. This notebook runs when these pages are built, on segments
# that real brokers wrote (`tests/golden` in the repository). Put a data directory of yours in their
# place.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl

import kafkascan as ks

golden = "tests/golden/kafka-4.4.0/data"
folders = [Path.cwd(), *Path.cwd().parents]
data_dir = next(path / golden for path in folders if (path / golden).is_dir())

# %% [markdown]
# ## One segment
#
# `scan_batches` returns a NumPy structured array with Kafka's field names, and the state of the
# log's end.

# %%
partition = data_dir / "transactions-0"
scan = ks.scan_batches(partition / "00000000000000000005.log")
scan.end, len(scan), scan.batches["base_offset"][:5]

# %% [markdown]
# `to_pandas` gives the columns that derive from the header, too: `last_offset`, `compression_type`,
# `is_transactional`, `max_timestamp` as a time.

# %%
batches = scan.to_pandas()
batches[["base_offset", "last_offset", "records_count", "compression_type", "producer_id"]].head()

# %% [markdown]
# ## A data directory
#
# `scan_log_dir` reads all live segments of a data directory in bounded memory. Its rows carry
# topic, partition and segment; `ends` says where each segment ends, and why.

# %%
log_batches = ks.scan_log_dir(data_dir)
everything = log_batches.to_polars()
everything.group_by("topic").agg(
    pl.len().alias("batches"),
    pl.col("records_count").sum(),
    pl.col("size_in_bytes").sum(),
).sort("size_in_bytes", descending=True).head(10)

# %%
unclean = [one for one in log_batches.ends if one.end is not ks.ScanEnd.CLEAN]
[(log_batches.segments[one.segment][1].path, one.end) for one in unclean]

# %% [markdown]
# Which codecs pay? Bytes for each record, by topic and codec:

# %%
totals = everything.group_by("topic", "compression_type").agg(
    pl.col("size_in_bytes", "records_count").sum()
)
totals.select(
    "topic",
    "compression_type",
    bytes_per_record=pl.col("size_in_bytes") / pl.col("records_count"),
).sort("bytes_per_record", descending=True).head(10)

# %% [markdown]
# ## Plots
#
# Small batches are the usual reason for large topics: each has a header of 61 bytes, and codecs
# find little to compress.

# %%
figure, axes = plt.subplots(figsize=(7, 3))
for (codec,), part in sorted(everything.group_by("compression_type")):
    axes.scatter(part["records_count"], part["size_in_bytes"], s=12, label=codec)
axes.set(xscale="log", yscale="log")
axes.set(xlabel="records in a batch", ylabel="bytes of the batch")
axes.legend(title="compression_type")
figure.tight_layout()
