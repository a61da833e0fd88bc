"""The options of a dump, with the names and defaults of ``kafka-dump-log``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkascan._core.text_lines import BIG_ENDIAN, HEX, TEXT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        return sizes if self.size is None else sizes.clip(max=self.size)

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


MAX_INT = 2**31 - 1
TOPIC_OPTIONS = (
    "offsets-decoder", "transaction-log-decoder", "cluster-metadata-decoder",
    "remote-log-metadata-decoder", "share-group-state-decoder",
)  # fmt: skip
"""Options of decoders of Kafka's own topics; the first one that is set counts."""


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """
    What is printed.

    Attributes
    ----------
    is_deep : bool
        Whether logs are printed with their records.
    prints_data : bool
        Whether records are printed with keys and values.
    skips_metadata : bool
        Whether records are printed without offsets, timestamps and sizes.
    verifies_index_only, checks_index_only : bool
        Whether indexes are compared with their log, or checked alone, and not printed.
    max_message_size : int
        Bytes from the position of an index entry on in which its batch has to be.
    max_bytes : int
        Bytes of each log that are read.
    decode : callable or None
        Decodes the records of one of Kafka's own topics.
    key, value : ItemDecoder
        Decode keys and values, without `decode`.
    is_json : bool
        Whether a line is a JSON object with all metadata.
    """

    is_deep: bool = False
    prints_data: bool = False
    skips_metadata: bool = False
    verifies_index_only: bool = False
    checks_index_only: bool = False
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT
    decode: RecordDecoder | None = None
    key: ItemDecoder = PRINT_TEXT
    value: ItemDecoder = PRINT_TEXT
    is_json: bool = False
