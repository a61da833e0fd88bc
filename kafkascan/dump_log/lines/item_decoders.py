"""Keys and values of records as text, as ``DumpLogSegments`` prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import BIG_ENDIAN, HEX, TEXT


class RecordText(NamedTuple):
    """Key and value of a record as they are printed; None for what is left out."""

    key: str | None
    value: str | None


RecordDecoder = Callable[[int, "bytes | None", "bytes | None"], RecordText]
"""Takes the offset, the key and the value of a record."""


class UndecodableRecordError(ValueError):
    """A record that makes ``DumpLogSegments`` end."""


class ItemDecoder(NamedTuple):
    """
    A decoder of keys or values that prints the same whatever the record is.

    Attributes
    ----------
    kind : int
        What is printed: a kind of parts of `LineForm`.
    size : int or None
        Leading bytes that the decoder prints; None for all.
    """

    kind: int
    size: int | None = None

    def printed_sizes(self, sizes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return how many bytes of each item are printed; -1 remains the null."""
        return sizes if self.size is None else np.minimum(sizes, np.int32(self.size))

    def require_decodable(self, sizes: NDArray[np.int32]) -> None:
        """
        Raise an error for items that are shorter than the decoder needs.

        Raises
        ------
        UndecodableRecordError
        """
        if self.size is None:
            return
        short = sizes[(sizes >= 0) & (sizes < self.size)]
        if len(short):
            raise UndecodableRecordError(f"the decoder needs {self.size} bytes, not {short[0]}")


PRINT_TEXT = ItemDecoder(TEXT)
ITEM_DECODERS: dict[str, ItemDecoder] = {
    "StringDecoder": PRINT_TEXT,
    "LongDecoder": ItemDecoder(BIG_ENDIAN, 8),
    "IntegerDecoder": ItemDecoder(BIG_ENDIAN, 4),
    # Kafka prints the address of an array here, which says nothing.
    "DefaultDecoder": ItemDecoder(HEX),
}
"""Decoders of keys and values by the last part of the name of their class."""
