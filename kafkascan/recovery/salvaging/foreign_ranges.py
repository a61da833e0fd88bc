"""Ranges of a salvaged segment that do not belong to the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.resyncing.batch_runs import NEIGHBOURS
from kafkascan.batches.resyncing.gaps import OUT_OF_ORDER, damaged_batches
from kafkascan.batches.resyncing.kept_ranges import headers_at, kept_ranges
from kafkascan.batches.resyncing.offset_chains import are_between, heaviest_ascending
from kafkascan.batches.resyncing.offset_evidence import are_copies, valid_prefix_count
from kafkascan.batches.resyncing.ranges import KeptRange as KeptRange
from kafkascan.format.layout import NO_PRODUCER_ID, NO_SEQUENCE
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.header_repair import (
    CLEARLY_MORE,
    RepairedLog,
    are_as_stored,
    sorted_by_position,
)

Doubtful: TypeAlias = Literal["keep", "drop"]
"""What `salvage` does with batches that may be the content of a damaged record."""


def without_foreign(
    log: RepairedLog, source: Source, *, doubtful: Doubtful
) -> tuple[RepairedLog, list[KeptRange]]:
    """Count ranges that do not belong to the log as damaged; return the others, too."""
    prefix = valid_prefix_count(log.batches, 0)  # Kafka's recovery keeps these
    ranges = ranges_of(log, source)
    are_odd = np.array([one.is_doubtful for one in ranges], np.bool_)
    positions = np.array([one.position for one in ranges], np.int64)
    starts = np.searchsorted(log.batches["position"], positions).astype(np.int64)
    stops = np.append(starts[1:], len(log.batches))[: len(starts)]
    is_dropped = are_odd & (starts >= prefix)
    if doubtful == "keep":
        sure = np.flatnonzero(np.repeat(~are_odd, stops - starts))
        if _have_sequences_in_runs(log, starts[is_dropped], stops[is_dropped]):
            return without_foreign(log.whole(), source, doubtful=doubtful)
        is_dropped[is_dropped] = _are_foreign(
            log.batches, sure, starts[is_dropped], stops[is_dropped]
        )
    if not is_dropped.any():
        return log, ranges
    if len(log.runs.rows):
        return without_foreign(log.whole(), source, doubtful=doubtful)
    is_kept = np.repeat(~is_dropped, stops - starts)
    dropped = set(log.batches["position"][~is_kept].tolist())
    foreign = damaged_batches(log.batches[starts[is_dropped]], "NESTED")
    last = log.batches[stops[is_dropped] - 1]
    foreign["stop"] = last["position"] + size_in_bytes(last)
    damaged = log.damaged.joined([foreign])
    repairs = [one for one in log.repairs if one.position not in dropped]
    others = log.batches.compress(~is_kept)
    others = sorted_by_position(join_tables([log.foreign, others[are_as_stored(log.runs, others)]]))
    log = replace(
        log, batches=log.batches.compress(is_kept), damaged=damaged, repairs=repairs, foreign=others
    )
    log = _without_orphans(log, source)
    return log, ranges_of(log, source)


def ranges_of(
    log: RepairedLog, source: Source, is_contested: NDArray[np.bool_] | None = None
) -> list[KeptRange]:
    """Return the kept ranges of a log; `is_contested` has batches that are doubtful anyway."""
    copies = log.copies[are_as_stored(log.runs, log.copies)]
    # What an uncertain repair changed may be right, and its neighbours wrong.
    guesses = [one for one in log.repairs if not one.is_certain and one.field == "base_offset"]
    stored, are_plausible = headers_at(
        source, np.array([one.position for one in guesses], np.int64)
    )
    # Batches that only foreign ones contradicted were restored; either may be the log's.
    foreign = log.foreign[~are_copies(log.foreign, log.batches)]
    dropped = sorted_by_position(join_tables([log.dropped, foreign, stored[are_plausible]]))
    return kept_ranges(
        source,
        0,
        log.batches,
        log.damaged,
        dropped,
        copies,
        is_contested,
        log.runs,
    )


def _have_sequences_in_runs(
    log: RepairedLog, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> bool:
    """Return whether ranges contain runs of idempotent producers."""
    at, _ = log.runs.find(log.batches)
    at = at[log.batches["producer_id"][at] > NO_PRODUCER_ID]
    return bool((np.searchsorted(at, starts) < np.searchsorted(at, stops)).any())


def _without_orphans(log: RepairedLog, source: Source) -> RepairedLog:
    """Count copies of batches that are no longer kept as dropped."""
    is_copy = are_copies(log.copies, log.batches)
    orphans = log.copies[~is_copy]
    dropped = join_tables([log.dropped, orphans[are_as_stored(log.runs, orphans)]])
    return replace(
        log,
        damaged=log.damaged.joined([damaged_batches(orphans, OUT_OF_ORDER)]),
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
    is_stored = are_as_stored(log.runs, log.copies)
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
    kept = set(batches["position"].tolist())
    stays = ~np.isin(log.damaged.rows["position"], others["position"])
    damaged = log.damaged.of(log.damaged.rows[stays])
    selected = replace(
        log,
        batches=batches,
        damaged=damaged.joined([damaged_batches(rest[~is_copy], OUT_OF_ORDER)]),
        repairs=[one for one in log.repairs if one.position in kept],
        copies=sorted_by_position(join_tables([rest[is_copy], log.copies[~is_stored]])),
        dropped=rest[~is_copy & are_as_stored(log.runs, rest)],
    )
    return _without_orphans(selected, source)


def _are_foreign(
    batches: BatchTable,
    sure: NDArray[np.intp],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which ranges leader epochs or sequences show not to belong to the log."""
    place, are_foreign = np.searchsorted(sure, starts), np.zeros(len(starts), np.bool_)
    first, last = np.maximum(0, place - NEIGHBOURS), np.minimum(len(sure), place + NEIGHBOURS)
    around = batches.take(sure)
    mine, low, high = (
        _Epochs(batches, starts, stops),
        _Epochs(around, first, place),
        _Epochs(around, place, last),
    )
    # The epochs of few batches may be the damaged ones.
    are_foreign |= (low.counts >= CLEARLY_MORE) & (mine.highest < low.lowest)
    are_foreign |= (high.counts >= CLEARLY_MORE) & (mine.lowest > high.highest)
    are_foreign &= mine.counts > 0
    return are_foreign | _have_other_sequences(batches, around, starts, stops, (first, place, last))


class _Epochs:
    """
    Leader epochs in ranges of batches, without those of messages of magic 0 and 1.

    Attributes
    ----------
    counts, lowest, highest : ndarray of int64, shape (n,)
        The last two are of no meaning where there are none.
    """

    def __init__(
        self, batches: BatchTable, starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> None:
        before = np.append(0, np.cumsum(batches["magic"] == 2))
        epochs = batches["partition_leader_epoch"][batches["magic"] == 2].astype(np.int64)
        bounds = np.stack([before[starts], before[stops]], axis=1)
        self.counts = bounds[:, 1] - bounds[:, 0]
        # For each pair of bounds and what is between two pairs; an end needs a value, too.
        epochs = np.append(epochs, 0)
        self.lowest = np.minimum.reduceat(epochs, bounds.reshape(-1))[::2]
        self.highest = np.maximum.reduceat(epochs, bounds.reshape(-1))[::2]


def _have_other_sequences(
    batches: BatchTable,
    around: BatchTable,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    bounds: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.bool_]:
    """
    Return which ranges have a producer of whose sequences most are not between its other ones.

    `bounds` are the first row of `around` that counts, the first after each range, and the last.
    """
    have, sequences = np.zeros(len(starts), np.bool_), batches["base_sequence"]
    of_producers = np.flatnonzero(
        (batches["producer_id"] > NO_PRODUCER_ID) & (sequences > NO_SEQUENCE)
    )
    one = np.append(of_producers, len(batches))[np.searchsorted(of_producers, starts)]
    checked = np.flatnonzero(one < stops)
    one, (first, place, last) = one[checked], (bound[checked] for bound in bounds)
    inside, range_of = _rows_in(starts[checked], stops[checked])
    is_around = np.zeros(len(around) + 1, np.int64)
    np.add.at(is_around, first, 1)
    np.add.at(is_around, last, -1)
    others = np.flatnonzero(np.cumsum(is_around))
    others = others[around["base_sequence"][others] > NO_SEQUENCE]
    inside, range_of = (found[sequences[inside] > NO_SEQUENCE] for found in (inside, range_of))
    if not len(others):
        return have
    producer, mine, theirs = _producers(
        batches.take(one), batches.take(inside), around.take(others)
    )
    # Sorted by producer and row, so that the rows of one beside a place are beside a number.
    count = len(around) + 1
    others = np.sort(theirs * count + others)
    after = np.searchsorted(others, producer * count + place)
    before, after = np.append(-1, others)[after], np.append(others, -1)[after]
    has_both = (
        (before >= producer * count + first) & (after >= 0) & (after < producer * count + last)
    )
    low, high = (
        around["base_sequence"][np.where(has_both, at % count, 0)] for at in (before, after)
    )
    is_mine = mine == producer[range_of]
    is_other = (sequences[inside] <= low[range_of]) | (sequences[inside] >= high[range_of])
    number = np.bincount(range_of, is_mine, len(checked))
    number_of_others = np.bincount(range_of, is_mine & is_other, len(checked))
    # One of several may be the damaged one.
    have[checked] = has_both & (low < high) & (2 * number_of_others > number)
    return have


def _rows_in(
    starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the rows in ranges, and the range of each."""
    sizes = stops - starts
    range_of = np.repeat(np.arange(len(sizes)), sizes)
    return np.arange(len(range_of)) + (starts - np.cumsum(sizes) + sizes)[range_of], range_of


def _producers(*tables: BatchTable) -> list[NDArray[np.int64]]:
    """Return a number for each row of tables that is equal where the producer and epoch are."""
    ids, epochs = (
        np.concatenate([one[name] for one in tables]) for name in ("producer_id", "producer_epoch")
    )
    order = np.lexsort([epochs, ids])
    numbers = np.zeros(len(ids), np.int64)
    is_next = (np.diff(ids[order]) != 0) | (np.diff(epochs[order]) != 0)
    numbers[order[1:]] = np.cumsum(is_next)
    return np.split(numbers, np.cumsum([len(one) for one in tables[:-1]]))
