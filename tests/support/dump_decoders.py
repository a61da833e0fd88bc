"""The decoder of kafka-dump-log for each of Kafka's own topics."""

from __future__ import annotations

from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.topic_decoders import TOPIC_DECODERS

DECODER_OPTIONS = {
    "__consumer_offsets": "offsets-decoder",
    "__transaction_state": "transaction-log-decoder",
    "__cluster_metadata": "cluster-metadata-decoder",
    "__share_group_state": "share-group-state-decoder",
    "__remote_log_metadata": "remote-log-metadata-decoder",
}


def options_for(partition: str) -> DumpOptions:
    """Return options that print the records of a partition, decoded if it is one of Kafka's own."""
    option = DECODER_OPTIONS.get(partition.rpartition("-")[0])
    decode = None if option is None else TOPIC_DECODERS[option]
    return DumpOptions(is_deep=True, prints_data=True, decode=decode)
