"""The search for batches in one window: what it accepts, rejects and reports."""

from __future__ import annotations

import numpy as np
import pytest

from kafkascan._core import search
from kafkascan.batches.resyncing.gaps import DAMAGED_DTYPE
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE
from tests.support.segments import batch_v2, message_v1

HIGHEST = 2**63 - 1


class Window:
    """A window at the beginning of a source."""

    def __init__(self, data: bytes, source_size: int | None = None) -> None:
        self.data = data
        self.source_size = len(data) if source_size is None else source_size
        sums = np.empty((2, search.sums_for(len(data))), np.uint32)
        self.searcher = search.Searcher(*sums)

    def find(self, position: int = 0, *, any_header: bool = False) -> tuple[str, int]:
        status, found = self.searcher.find(
            self.data, 0, self.source_size, position, self.source_size, 0, HIGHEST, any_header
        )
        return next(symbol for symbol, number in STATUS.items() if number == status), found


IMPLAUSIBLE = {
    "an unknown codec": {"attributes": 5},
    "an unknown attribute": {"attributes": 0x80},
    "a last offset that overflows": {"base_offset": HIGHEST, "last_offset_delta": 1},
    "a negative delta": {"last_offset_delta": -1},
    "a negative count": {"records_count": -1},
}


@pytest.mark.parametrize("fields", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_implausible_batches_are_found_only_on_request(fields: dict[str, int]) -> None:
    window = Window(b"x" * 40 + batch_v2(b"payload", **fields) + b"x" * 40)
    assert window.find() == ("AT_STOP", len(window.data))
    assert window.find(any_header=True) == ("OK", 40)


def test_a_message_whose_key_ends_after_the_window_needs_more() -> None:
    message = message_v1(b"k" * 100, b"value")
    data = b"x" * 40 + message
    assert Window(data[:120], len(data)).find() == ("NEED_WINDOW", 40)
    assert Window(data).find() == ("OK", 40)


def test_a_window_can_be_searched_again_from_an_earlier_position() -> None:
    parts = [batch_v2(bytes(size), base_offset=size) for size in (3000, 2000, 1000)]
    window = Window(b"".join(parts))
    second = len(parts[0])
    for position, found in ((second, second), (second + 1, second + len(parts[1])), (0, 0)):
        assert window.find(position) == ("OK", found)


BATCH = len(batch_v2(b"payload"))


def log_without_magic(count: int) -> bytes:
    """Return a log in which every second batch has a wrong magic byte."""
    batches = [bytearray(batch_v2(b"payload", base_offset=offset)) for offset in range(count)]
    for batch in batches[1::2]:
        batch[16] = 9
    return b"".join(batches)


def skipped(
    data: bytes, rows: int = 100, ranges: int = 100, *, stop: int | None = None
) -> tuple[list[int], list[tuple[int, int]], int, int]:
    """Return the positions of batches and the damaged ranges, and where both end."""
    found, damaged = np.empty(rows, BATCH_DTYPE), np.empty(ranges, DAMAGED_DTYPE)
    status, batches, count, position, last_damage = Window(data).searcher.skip_damage(
        data, 0, 0, len(data) if stop is None else stop, 0, HIGHEST, True, 1 << 16, 1 << 27, found,
        damaged,
    )  # fmt: skip
    assert status == STATUS["OK"]
    places = damaged[["position", "stop"]][:count].tolist()
    return found["position"][:batches].tolist(), places, position, last_damage


def test_damage_is_skipped_up_to_what_is_left_to_the_caller() -> None:
    batches, damaged, position, last_damage = skipped(log_without_magic(10))
    # After the last one, there is no valid batch.
    assert batches == [BATCH * row for row in range(0, 8, 2)]
    assert damaged == [(at + BATCH, at + 2 * BATCH) for at in batches]
    assert position == last_damage == 8 * BATCH
    assert skipped(log_without_magic(10), stop=5 * BATCH)[2] == 4 * BATCH


@pytest.mark.parametrize(("rows", "ranges"), [(0, 9), (9, 0), (0, 0), (2, 9), (9, 2), (2, 2)])
def test_full_outputs_end_the_skipping_between_two_ranges(rows: int, ranges: int) -> None:
    batches, damaged, position, _ = skipped(log_without_magic(20), rows, ranges)
    assert len(batches) == len(damaged) == min(rows, ranges)
    assert position == 2 * BATCH * len(batches)


def test_positions_outside_of_the_source_are_refused() -> None:
    data = log_without_magic(4)
    rows, ranges = np.empty(9, BATCH_DTYPE), np.empty(9, DAMAGED_DTYPE)
    for position, last_damage, stop in ((-1, -1, 9), (9, 10, 20), (len(data) + 1, 0, 9),
                                        (0, 0, len(data) + 1), (9, -1, 20)):  # fmt: skip
        with pytest.raises(ValueError, match="positions exceed the source"):
            Window(data).searcher.skip_damage(
                data, position, last_damage, stop, 0, HIGHEST, True, 99, 99, rows, ranges
            )
    with pytest.raises(ValueError, match="inconsistent"):  # too few sums
        Window(b"").searcher.skip_damage(
            bytes(4096), 0, 0, 9, 0, HIGHEST, True, 99, 99, rows, ranges
        )
