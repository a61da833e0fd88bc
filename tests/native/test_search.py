"""The search for batches in one window: what it accepts, rejects and reports."""

from __future__ import annotations

import numpy as np
import pytest

from kafkascan._core import search
from kafkascan.format.errors import STATUS
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
