"""Records of ``__transaction_state`` (KIP-98, KIP-890)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, Field, Schema

_TRANSACTIONAL_ID = (Field("transactional_id", "string"),)
_PARTITIONS_SCHEMA = Schema(
    "PartitionsSchema", (Field("topic", "string"), Field("partition_ids", Array("int32")))
)
TRANSACTION_LOG_VALUE = Schema(
    "TransactionLogValue",
    (
        Field("producer_id", "int64"),
        Field("previous_producer_id", "int64", since=1, tag=0, default=-1),
        Field("next_producer_id", "int64", since=1, tag=1, default=-1),
        Field("producer_epoch", "int16"),
        Field("next_producer_epoch", "int16", since=1, tag=3, default=-1),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_status", "int8"),
        Field("transaction_partitions", Array(_PARTITIONS_SCHEMA), nullable_since=0),
        Field("transaction_last_update_timestamp_ms", "int64"),
        Field("transaction_start_timestamp_ms", "int64"),
        Field("client_transaction_version", "int16", since=1, tag=2, default=0),
    ),
    flexible_since=1,
    newest=1,
)

TRANSACTION_RECORDS: dict[int, tuple[Schema, Schema]] = {
    0: (Schema("TransactionLogKey", _TRANSACTIONAL_ID), TRANSACTION_LOG_VALUE),
}
"""Schemas of keys and values by the type of the record."""
