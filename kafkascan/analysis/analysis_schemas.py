"""The columns of analyses, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown

DEFAULT_CHOICES = (
    "none", "gzip:1", "gzip:6", "snappy", "lz4", "zstd:1", "zstd:3", "zstd:9",
)  # fmt: skip
"""The choices that `advise` tries by default: codecs, with the level after a colon."""

ADVICE_SCHEMA = Schema(
    "advice",
    (
        Field("topic", "string", "topic of the group", shown=Shown.ALWAYS),
        Field("producer_id", "int64", "producer of the group; null, if it is a topic with all of"
              " its producers", shown=Shown.WIDE),
        Field("codec", "string", "Kafka's name of the codec", nullable=False,
              shown=Shown.ALWAYS),
        Field("level", "int32", "level of the codec; null, if it has none"),
        Field("batches", "int64", "batches in the sample", nullable=False, shown=Shown.WIDE),
        Field("records_bytes", "int64", "uncompressed size of the sample, without batch headers",
              "bytes", nullable=False, shown=Shown.WIDE),
        Field("stored_bytes", "int64", "size of the sample in the log, with batch headers",
              "bytes", nullable=False, shown=Shown.WIDE),
        Field("compressed_bytes", "int64", "size of the sample in this codec, with batch"
              " headers", "bytes", nullable=False, shown=Shown.WIDE),
        Field("ratio", "float64", "uncompressed size by compressed size", nullable=False),
        Field("saving", "float64", "part of the stored bytes that the codec would save; negative,"
              " if they would grow", nullable=False, shown=Shown.ALWAYS),
        Field("compress_mb_per_s", "float64", "MB of records (10**6 bytes) that one thread"
              " compresses per second"),
        Field("decompress_mb_per_s", "float64", "MB of records that one thread decompresses per"
              " second"),
        Field("total_batches", "int64", "batches of magic 2 of the group, without control"
              " batches", nullable=False, shown=Shown.WIDE),
        Field("total_bytes", "int64", "size of these", "bytes", nullable=False,
              shown=Shown.WIDE),
        Field("stored_codecs", "string", "codecs of these, with the number of batches",
              nullable=False),
    ),
)  # fmt: skip
"""The columns of `Advice`, with a row per trial."""

DIFF_SCHEMA = Schema(
    "differences",
    (
        TOPIC,
        PARTITION,
        Field("kind", "string", "only_left, only_right, changed, compacted or rebatched",
              nullable=False, shown=Shown.ALWAYS),
        Field("location", "string", "relative to what is the same in both logs: start, middle,"
              " end or all", nullable=False, shown=Shown.ALWAYS),
        Field("left_first_offset", "int64", "first offset in the left log; null, if it has no"
              " batch in the range"),
        Field("left_last_offset", "int64", "last offset in the left log"),
        Field("right_first_offset", "int64", "first offset in the right log"),
        Field("right_last_offset", "int64", "last offset in the right log"),
        Field("left_batches", "int64", "batches in the left log", nullable=False,
              shown=Shown.WIDE),
        Field("right_batches", "int64", "batches in the right log", nullable=False,
              shown=Shown.WIDE),
        Field("left_records", "int64", "records in the left log; null with compressed messages"
              " of magic 0 and 1", shown=Shown.WIDE),
        Field("right_records", "int64", "records in the right log", shown=Shown.WIDE),
        Field("left_epoch", "int32", "leader epoch of the first batch in the left log",
              shown=Shown.WIDE),
        Field("right_epoch", "int32", "leader epoch of the first batch in the right log",
              shown=Shown.WIDE),
        Field("is_difference", "bool", "whether retention, lag and compaction do not explain it",
              nullable=False, shown=Shown.WIDE, alarms={"true": "yellow"}),
    ),
)  # fmt: skip
"""The columns of `LogDiff`, with a row per range."""

PRODUCER_SCHEMA = Schema(
    "producers",
    (
        TOPIC,
        PARTITION,
        Field("producer_id", "int64", "id of the producer; -1 for batches without one, and"
              " messages of magic 0 and 1", nullable=False, shown=Shown.ALWAYS),
        Field("first_epoch", "int64", "its first epoch in the log", nullable=False,
              shown=Shown.WIDE),
        Field("producer_epoch", "int64", "its last epoch in the log", nullable=False),
        Field("last_sequence", "int64", "its last sequence number", nullable=False,
              shown=Shown.WIDE),
        Field("batches", "int64", "its batches, without markers", nullable=False,
              shown=Shown.ALWAYS),
        Field("records", "int64", "its records, without those in compressed messages of magic 0"
              " and 1", nullable=False, shown=Shown.ALWAYS),
        Field("size_in_bytes", "int64", "size of its batches", "bytes", nullable=False,
              shown=Shown.WIDE),
        Field("largest_batch", "int64", "size of its largest batch", "bytes", nullable=False,
              shown=Shown.WIDE),
        Field("first_offset", "int64", "its first offset", nullable=False, shown=Shown.WIDE),
        Field("last_offset", "int64", "its last offset", nullable=False, shown=Shown.WIDE),
        Field("first_timestamp", "time", "earliest timestamp of its batches", shown=Shown.WIDE),
        Field("last_timestamp", "time", "latest timestamp of its batches", shown=Shown.WIDE),
        Field("transactional_batches", "int64", "of its batches, those of transactions",
              nullable=False, shown=Shown.WIDE),
        Field("markers", "int64", "its transaction markers", nullable=False, shown=Shown.WIDE),
        Field("codecs", "string", "codecs of its batches, joined by +", nullable=False),
        Field("compressed_batches", "int64", "of its batches, the compressed ones",
              nullable=False, shown=Shown.WIDE),
        Field("epoch_bumps", "int64", "how often its epoch rose", nullable=False,
              shown=Shown.WIDE),
        Field("wraps", "int64", "how often its sequence went from 2147483647 to 0",
              nullable=False, shown=Shown.WIDE),
        Field("sequence_gaps", "int64", "how often it skipped sequence numbers",
              nullable=False),
        Field("missing_records", "int64", "sequence numbers that it skipped", nullable=False,
              shown=Shown.WIDE),
        Field("first_gap", "int64", "offset of the first batch after a gap; -1 without one",
              nullable=False, shown=Shown.WIDE),
        Field("duplicates", "int64", "batches that repeat sequence numbers", nullable=False),
        Field("first_duplicate", "int64", "offset of the first of these; -1 without one",
              nullable=False, shown=Shown.WIDE),
        Field("fenced", "int64", "batches of an epoch below an earlier one", nullable=False,
              shown=Shown.WIDE),
        Field("first_fenced", "int64", "offset of the first of these; -1 without one",
              nullable=False, shown=Shown.WIDE),
        Field("forgotten", "int64", "harmless jumps of the sequence: earlier batches are gone"
              " from the log, or the producer had expired", nullable=False, shown=Shown.WIDE),
        Field("spanning_batches", "int64", "batches of several records with timestamps of the"
              " producer", nullable=False, shown=Shown.WIDE),
        Field("span_ms_max", "int64", "longest time between the first and last timestamp of"
              " these", "ms", nullable=False, shown=Shown.WIDE),
        Field("mean_batch_size", "float64", "mean size of a batch in bytes", shown=Shown.WIDE),
        Field("mean_span_ms", "float64", "mean time between the first and last timestamp of a"
              " spanning batch: close to linger.ms, if that completes batches",
              shown=Shown.WIDE),
        Field("compression_ratio", "float64", "uncompressed size by size in the log: 1 without"
              " compression, otherwise that of a sample", shown=Shown.WIDE),
        Field("sampled_batches", "int64", "batches that were decompressed for the ratio",
              nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `ProducerCensus`, with a row per producer and log. Sequence errors are judged by
the rules of a partition leader (``ProducerAppendInfo``)."""

COUNT_SCHEMA = Schema(
    "counts",
    (
        TOPIC,
        PARTITION,
        Field("segments", "int64", "segments of the log, also those whose offsets an earlier one"
              " contains", nullable=False, shown=Shown.WIDE),
        Field("batches", "int64", "batches from the start offset on", nullable=False,
              shown=Shown.WIDE),
        Field("start_offset", "int64", "first offset of the log; -1 if it is empty",
              nullable=False),
        Field("end_offset", "int64", "offset after the last batch", nullable=False),
        Field("last_stable_offset", "int64", "offset at which a read_committed consumer stops",
              nullable=False, shown=Shown.WIDE),
        Field("records", "int64", "records that a consumer of the whole log gets: not those that"
              " compaction removed", nullable=False, shown=Shown.ALWAYS),
        Field("uncounted_batches", "int64", "compressed messages of magic 0 and 1 that were not"
              " decompressed; their records are not counted", nullable=False, shown=Shown.WIDE),
        Field("transactional_records", "int64", "of the records, those of transactions",
              nullable=False, shown=Shown.WIDE),
        Field("aborted_records", "int64", "of the records, those of aborted transactions",
              nullable=False),
        Field("open_records", "int64", "of the records, those of open transactions, as far as"
              " they are in the log", nullable=False, shown=Shown.WIDE),
        Field("committed_records", "int64", "records that a read_committed consumer gets",
              nullable=False),
        Field("control_records", "int64", "transaction markers and control records of KRaft",
              nullable=False, shown=Shown.WIDE),
        Field("missing_offsets", "int64", "offsets from the first batch to the end without a"
              " record; -1 if that is not known", nullable=False, shown=Shown.WIDE),
        Field("size_in_bytes", "int64", "size of the batches, also of segments whose offsets an"
              " earlier one contains", "bytes", nullable=False, shown=Shown.WIDE),
        Field("is_exact", "bool", "whether the log was counted completely", nullable=False,
              shown=Shown.ALWAYS, alarms={"false": "yellow"}),
    ),
)  # fmt: skip
"""The columns of `RecordCounts`, with a row per log."""

TRANSACTION_SCHEMA = Schema(
    "transactions",
    (
        TOPIC,
        PARTITION,
        Field("producer_id", "int64", "id of the producer", nullable=False, shown=Shown.ALWAYS),
        Field("producer_epoch", "int16", "epoch of the producer", nullable=False,
              shown=Shown.WIDE),
        Field("state", "string", "open, aborted or committed", nullable=False,
              shown=Shown.ALWAYS),
        Field("first_offset", "int64", "offset of its first record; -1 if it has none",
              nullable=False),
        Field("last_offset", "int64", "offset of its last record; -1 if it has none",
              nullable=False),
        Field("marker_offset", "int64", "offset of its marker; -1 if it is open", nullable=False,
              shown=Shown.WIDE),
        Field("last_stable_offset", "int64", "last stable offset after its marker; -1 if it is"
              " open or empty", nullable=False, shown=Shown.WIDE),
        Field("first_timestamp", "time", "earliest timestamp of its batches; none if it began"
              " before the log does", shown=Shown.WIDE),
        Field("last_timestamp", "time", "latest timestamp of its batches", shown=Shown.WIDE),
        Field("batches", "int64", "its batches in the log, without the marker", nullable=False,
              shown=Shown.WIDE),
        Field("records", "int64", "its records in the log", nullable=False),
        Field("size_in_bytes", "int64", "size of its batches in the log", "bytes",
              nullable=False, shown=Shown.WIDE),
        Field("coordinator_epoch", "int32", "epoch of the coordinator that wrote the marker",
              nullable=False, shown=Shown.WIDE),
        Field("age_ms", "int64", "time from the last batch of an open one to `age_at`", "ms"),
        Field("age_at", "time", "time relative to which an open one is old", shown=Shown.WIDE),
        Field("clock", "string", "what that time is: latest_write to the log, or now, which may"
              " be given", shown=Shown.WIDE),
        Field("transactional_id", "string", "transactional id of an open one, by"
              " `__transaction_state` in the same data directory", shown=Shown.WIDE),
        Field("coordinator_state", "string", "state of an open one at its coordinator; none if"
              " `__transaction_state` in the same data directory does not contain its producer"),
        Field("coordinator_age_ms", "int64", "time from the beginning of an Ongoing one there to"
              " `age_at`", "ms", shown=Shown.WIDE),
        Field("coordinator_timeout_ms", "int32", "time after which the coordinator aborts it",
              "ms", shown=Shown.WIDE),
        Field("is_hanging", "bool", "whether it is open for longer than the timeout, and its"
              " coordinator does not have it as Ongoing within its own timeout",
              nullable=False, alarms={"true": "yellow"}),
        Field("is_empty", "bool", "whether there is only a marker", nullable=False,
              shown=Shown.WIDE),
        Field("command", "string", "command that aborts an open one; none while its coordinator"
              " has it as Ongoing within its timeout", "command",
              shown=Shown.BELOW),
    ),
)  # fmt: skip
"""The columns of `Transactions`."""

CONTRADICTION_SCHEMA = Schema(
    "contradictions",
    (
        Field("symbol", "string", "kind of the contradiction", nullable=False,
              shown=Shown.ALWAYS),
        TOPIC,
        PARTITION,
        Field("producer_id", "int64", "id of the producer", nullable=False, shown=Shown.ALWAYS),
        Field("producer_epoch", "int16", "epoch of the producer", nullable=False,
              shown=Shown.WIDE),
        Field("first_offset", "int64", "offset of the transaction's first record",
              nullable=False),
        Field("last_timestamp", "time", "latest timestamp of its batches", shown=Shown.WIDE),
        Field("transactional_id", "string", "transactional id with this producer id"),
        Field("status", "string", "state of its transaction at the coordinator"),
        Field("message", "string", "one sentence", nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `find_contradictions`."""

USAGE_SCHEMA = Schema(
    "schema_usage",
    (
        TOPIC,
        PARTITION,
        Field("subject", "string", "subject of the schema: that of the topic, if it has the schema;"
              " null without a known schema", shown=Shown.ALWAYS),
        Field("version", "int32", "version of that subject", shown=Shown.ALWAYS),
        Field("id", "int64", "id of the schema"),
        Field("schema_type", "string", "AVRO, PROTOBUF or JSON", shown=Shown.WIDE),
        Field("framing", "string", "how the records name the schema: confluent, apicurio, glue,"
              " glue_zlib or header; or why it is unknown: null, no_prefix, unknown_id, ambiguous"
              ", bad_header or not_binary", nullable=False, shown=Shown.ALWAYS),
        Field("records", "int64", "records, also aborted ones", nullable=False,
              shown=Shown.ALWAYS),
        Field("first_offset", "int64", "offset of the first of them", nullable=False),
        Field("last_offset", "int64", "offset of the last of them", nullable=False,
              shown=Shown.WIDE),
        Field("first_timestamp", "time", "earliest timestamp", shown=Shown.WIDE),
        Field("last_timestamp", "time", "latest timestamp"),
        Field("producer_ids", "list<int64>", "ids of the producers; those that are not idempotent"
              " have none", nullable=False),
    ),
)  # fmt: skip
"""The columns of the result of `read_schema_usage`."""
