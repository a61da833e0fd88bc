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
# # DuckDB over a data directory
#
# Tables of kafkascan export the Arrow stream interface, so DuckDB reads them without a copy: batch
# headers of all segments, records, and the state in Kafka's own topics. This notebook runs when
# these pages are built, on segments that real brokers wrote. Put a data directory of yours in
# their place.

# %%
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa

import kafkascan as ks

golden = "tests/golden/kafka-4.4.0/data"
folders = [Path.cwd(), *Path.cwd().parents]
data_dir = next(path / golden for path in folders if (path / golden).is_dir())

# %% [markdown]
# ## Which producers write small batches?
#
# `to_reader` streams the headers of all live segments: DuckDB aggregates them while they are read.

# %%
batches = ks.scan_log_dir(data_dir).to_reader()
duckdb.sql(
    """
    SELECT topic, producer_id, count(*) AS batches, sum(records_count) AS records,
           round(avg(size_in_bytes)) AS bytes_per_batch
    FROM batches
    WHERE NOT is_control
    GROUP BY ALL
    ORDER BY bytes_per_batch
    LIMIT 10
    """
).df()

# %% [markdown]
# ## Gaps between batches
#
# Where does a log's next batch not begin at the offset after the last one? Compaction leaves gaps;
# in other topics, records are missing.

# %%
headers = ks.scan_log_dir(data_dir).to_arrow()
duckdb.sql(
    """
    SELECT topic, partition, last_offset, next_base_offset,
           next_base_offset - last_offset - 1 AS missing
    FROM (SELECT *, lead(base_offset) OVER (PARTITION BY topic, partition ORDER BY base_offset)
                    AS next_base_offset
          FROM headers)
    WHERE next_base_offset > last_offset + 1
    ORDER BY missing DESC
    LIMIT 10
    """
).df()

# %% [markdown]
# ## Records
#
# `iter_records` decodes a log in pieces of bounded memory. DuckDB reads one piece after the other
# from the generator of Arrow record batches; values are bytes, and `decode` makes text of them.

# %%
tables = map(ks.RecordTable.to_arrow, ks.iter_records(data_dir / "idempotent-0"))
first = next(tables)
pieces = (one for table in chain([first], tables) for one in table.to_batches())
records = pa.RecordBatchReader.from_batches(first.schema, pieces)
duckdb.sql(
    """
    SELECT decode(key) AS key, count(*) AS records, min("offset") AS first_offset,
           max("timestamp") AS last_timestamp
    FROM records GROUP BY ALL ORDER BY records DESC, key LIMIT 5
    """
).df()

# %% [markdown]
# ## Committed offsets
#
# The state in Kafka's own topics is tables, too: groups, transactions, the metadata of the cluster.
# `lag` is there where the topic's log is in the data directory.

# %%
groups = ks.read_groups(data_dir.parents[1] / "kafka-2.8.2-groups/data")
offsets = groups.offsets.to_arrow()
duckdb.sql('SELECT "group", topic, "partition", "offset", lag FROM offsets').df()
