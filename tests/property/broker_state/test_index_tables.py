"""Indexes of a segment do not depend on the tables in which its batches are added."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.batches.columns import BatchTable
from kafkascan.broker_state.indexes import IndexBuilder
from kafkascan.format.errors import BatchTableError, IndexOverflowError
from tests.support.examples import examples
from tests.support.log_corpus import random_log


def _built(tables: list[BatchTable], interval: int) -> list[bytes] | tuple[object, ...]:
    builder = IndexBuilder(0, interval, "a.log")
    try:
        for table in tables:
            builder.add(table)
        return [entries.tobytes() for entries in builder.finish()]
    except (BatchTableError, IndexOverflowError) as error:
        return type(error), error.row, error.position, str(error)


@examples(120)
@given(st.integers(0, 2**32), st.integers(0, 12), st.sampled_from([0, 100, 4096]), st.booleans())
def test_any_tables_give_the_same_entries(
    seed: int, count: int, interval: int, is_disordered: bool
) -> None:
    dice = random.Random(seed)
    batches = ks.scan_batches(random_log(dice, batches=count)).batches
    if is_disordered and len(batches):
        batches["base_offset"][dice.randrange(len(batches))] = dice.choice([-9, 0, 3, 2**40])
        batches["max_timestamp"][dice.randrange(len(batches))] = 2**50
    cuts = sorted(dice.choices(range(len(batches) + 1), k=3))
    tables = [batches[first:last] for first, last in pairwise([0, *cuts, len(batches)])]
    assert _built(tables, interval) == _built([batches], interval)
