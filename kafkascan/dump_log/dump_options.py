"""The options of a dump, with the names and defaults of ``kafka-dump-log``."""

from __future__ import annotations

from dataclasses import dataclass

from kafkascan.dump_log.lines.item_decoders import PRINT_TEXT, ItemDecoder, RecordDecoder

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
