"""Ranges of a salvaged segment that do not belong to the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset
from kafkascan.batches.resyncing.gaps import DamagedRange
from kafkascan.batches.resyncing.kept_ranges import (
    NEIGHBOURS,
    KeptRange as KeptRange,
    are_doubtful,
    header_at,
    kept_ranges,
    of_same_producer,
)
from kafkascan.batches.resyncing.offset_chains import are_between, heaviest_ascending
from kafkascan.batches.resyncing.offset_evidence import are_copies, valid_prefix_count
from kafkascan.format.errors import record_error
from kafkascan.format.layout import NO_PRODUCER_ID, NO_SEQUENCE
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.header_repair import (
    CLEARLY_MORE,
    RepairedLog,
    are_as_stored,
    misplaced,
    sorted_by_position,
)

Doubtful: TypeAlias = Literal["keep", "drop"]


def without_foreign(log: RepairedLog, source: Source, *, doubtful: Doubtful) -> RepairedLog:
    """Count ranges that do not belong to the log as damaged."""
    foreign = list[DamagedRange]()
    is_kept = np.ones(len(log.batches), np.bool_)
    prefix = valid_prefix_count(log.batches, 0)  # Kafka's recovery keeps these
    ranges = ranges_of(log, source)
    sure = np.flatnonzero(~are_doubtful(log.batches, ranges))
    stop = 0
    for one in ranges:
        start, stop = stop, stop + one.batches
        is_dropped = one.is_doubtful and start >= prefix
        if is_dropped and (doubtful == "drop" or _is_foreign(log.batches, sure, start, stop)):
            is_kept[start:stop] = False
            error = record_error("NESTED", source.path, log.batches[start])
            foreign.append(DamagedRange(one.position, one.position + one.size, error))
    if not foreign:
        return log
    dropped = set(log.batches["position"][~is_kept].tolist())
    damaged = sorted([*log.damaged, *foreign], key=lambda one: one.start)
    repairs = [one for one in log.repairs if one.position not in dropped]
    others = log.batches[~is_kept]
    others = sorted_by_position(join_tables([log.foreign, others[are_as_stored(source, others)]]))
    log = replace(
        log, batches=log.batches[is_kept], damaged=damaged, repairs=repairs, foreign=others
    )
    return _without_orphans(log, source)


def ranges_of(
    log: RepairedLog, source: Source, is_contested: NDArray[np.bool_] | None = None
) -> list[KeptRange]:
    """Return the kept ranges of a log; `is_contested` has batches that are doubtful anyway."""
    copies = log.copies[are_as_stored(source, log.copies)]
    # What an uncertain repair changed may be right, and its neighbours wrong.
    guesses = [one for one in log.repairs if not one.is_certain and one.field == "base_offset"]
    stored = [header_at(source, one.position) for one in guesses]
    # Batches that only foreign ones contradicted were restored; either may be the log's.
    foreign = log.foreign[~are_copies(log.foreign, log.batches)]
    dropped = sorted_by_position(join_tables([log.dropped, foreign, *stored]))
    return kept_ranges(source, 0, log.batches, log.damaged, dropped, copies, is_contested)


def _without_orphans(log: RepairedLog, source: Source) -> RepairedLog:
    """Count copies of batches that are no longer kept as dropped."""
    is_copy = are_copies(log.copies, log.batches)
    orphans = log.copies[~is_copy]
    damaged = [*log.damaged, *(misplaced(source, row) for row in orphans)]
    dropped = join_tables([log.dropped, orphans[are_as_stored(source, orphans)]])
    return replace(
        log,
        damaged=sorted(damaged, key=lambda one: one.start),
        copies=log.copies[is_copy],
        dropped=sorted_by_position(dropped),
    )


def selected_again(
    log: RepairedLog, source: Source, lowest: int, highest: int
) -> RepairedLog | None:
    """
    Select the largest set of batches once foreign ones are dropped; return None if it is the same.

    What Kafka's recovery keeps stays. Of sets of the same size, the one with more of the batches is
    selected that are kept now.
    """
    if not len(log.foreign):
        return None
    is_stored = are_as_stored(source, log.copies)
    prefix = valid_prefix_count(log.batches, 0)
    others = sorted_by_position(
        join_tables([log.batches[prefix:], log.dropped, log.copies[is_stored]])
    )
    is_kept = np.isin(others["position"], log.batches["position"])
    fits = are_between(log.batches[:prefix], others, lowest, highest)
    first, last = others["base_offset"][fits], last_offset(others)[fits]
    fits[fits] = heaviest_ascending(first, last, (len(others) + 1 + is_kept)[fits])
    if np.array_equal(fits, is_kept):
        return None
    batches, rest = join_tables([log.batches[:prefix], others[fits]]), others[~fits]
    is_copy = are_copies(rest, batches)
    moved, kept = set(others["position"].tolist()), set(batches["position"].tolist())
    damaged = [one for one in log.damaged if one.start not in moved]
    damaged += [misplaced(source, row) for row in rest[~is_copy]]
    selected = replace(
        log,
        batches=batches,
        damaged=sorted(damaged, key=lambda one: one.start),
        repairs=[one for one in log.repairs if one.position in kept],
        copies=sorted_by_position(join_tables([rest[is_copy], log.copies[~is_stored]])),
        dropped=rest[~is_copy & are_as_stored(source, rest)],
    )
    return _without_orphans(selected, source)


def _is_foreign(batches: BatchTable, sure: NDArray[np.intp], start: int, stop: int) -> bool:
    """Return whether leader epochs or sequences show that a range does not belong to the log."""
    row = int(np.searchsorted(sure, start))
    inside = batches[start:stop]
    before = batches[sure[max(0, row - NEIGHBOURS) : row]]
    after = batches[sure[row : row + NEIGHBOURS]]
    return _has_other_epochs(inside, before, after) or _has_other_sequences(inside, before, after)


def _has_other_epochs(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether all leader epochs of a range are below or above those of its neighbours."""

    def epochs(table: BatchTable) -> NDArray[np.int32]:
        found: NDArray[np.int32] = table["partition_leader_epoch"][table["magic"] == 2]
        return found

    mine, low, high = epochs(inside), epochs(before), epochs(after)
    if not len(mine):
        return False
    # The epochs of few batches may be the damaged ones.
    is_below = len(low) >= CLEARLY_MORE and int(mine.max()) < int(low.min())
    is_above = len(high) >= CLEARLY_MORE and int(mine.min()) > int(high.max())
    return bool(is_below or is_above)


def _has_other_sequences(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether most sequences of a producer are not between those of its other batches."""
    is_of_producer = (inside["producer_id"] > NO_PRODUCER_ID) & (
        inside["base_sequence"] > NO_SEQUENCE
    )
    if not is_of_producer.any():
        return False
    one = inside[is_of_producer][0]
    last = of_same_producer(before, one)
    following = of_same_producer(after, one)
    if not (len(last) and len(following)):
        return False
    low, high = int(last["base_sequence"][-1]), int(following["base_sequence"][0])
    mine = of_same_producer(inside, one)["base_sequence"]
    is_other = (mine <= low) | (mine >= high)
    # One of several may be the damaged one.
    return low < high and 2 * int(is_other.sum()) > len(mine)
