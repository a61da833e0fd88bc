"""The commands by task, with the line that the help prints about each.

A command's module is imported when the command runs, so that ``kafkascan --help`` and shell
completion load neither NumPy nor the library.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A command: its name, its module in ``kafkascan.cli.verbs``, the first line of its help."""

    name: str
    module: str
    summary: str

    @property
    def attribute(self) -> str:
        """Name of the command in its module."""
        return self.name.replace("-", "_")


VERBS_BY_TASK = {
    "Look": (
        Verb("info", "segment_commands", "Summarize segment files from their batch headers."),
        Verb("batches", "segment_commands",
             "List the batches of segment files, a row per batch header."),
        Verb("records", "record_commands",
             "List records: offset, timestamp, key, value and headers."),
        Verb("count", "log_commands",
             "Count records: all, committed, aborted and open ones."),
        Verb("txns", "log_commands",
             "List transactions: open, hanging, aborted, committed."),
        Verb("producers", "log_commands",
             "List producers: volume, batching, codecs, sequence errors."),
        Verb("advise", "log_commands",
             "Estimate the saving of other codecs by compressing samples."),
        Verb("dump-log", "dump_commands",
             "Print files as Kafka's kafka-dump-log does, line for line."),
    ),
    "Ask": (
        Verb("groups", "state_commands",
             "List committed offsets, consumer groups and members."),
        Verb("txn-state", "state_commands",
             "List transactional ids and the state of their transactions."),
        Verb("share-state", "state_commands",
             "List start offsets and delivery states of share groups."),
        Verb("metadata", "state_commands",
             "List the brokers, topics and settings of the cluster."),
        Verb("remote-segments", "state_commands",
             "List the segments in remote storage (tiered storage)."),
    ),
    "Check": (
        Verb("verify", "segment_commands", "Verify the checksum of every batch in segment files."),
        Verb("audit", "log_commands", "Check logs for damage, inconsistencies and risks."),
        Verb("index", "index_commands",
             "Show, check, build and search index files and checkpoints."),
        Verb("report", "log_commands",
             "Write an HTML page about logs: findings, plots and tables."),
    ),
    "Repair": (
        Verb("recover", "recovery_commands",
             "Recover logs as a broker does after an unclean shutdown."),
        Verb("salvage", "recovery_commands",
             "Copy the intact batches of damaged logs to new logs."),
    ),
    "Change": (
        Verb("convert", "rewrite_commands",
             "Convert a log to another message format or codec."),
        Verb("restamp", "rewrite_commands",
             "Rewrite header fields: offsets, leader epoch, timestamps."),
        Verb("scrub", "rewrite_commands",
             "Remove records by key or by offset, as compaction does."),
    ),
    "Compare": (
        Verb("diff", "log_commands",
             "Compare replicas, a backup or a mirror by batch headers."),
    ),
    "Many brokers": (
        Verb("spark", "spark_commands", "Run jobs over the logs of many brokers on Spark."),
    ),
}  # fmt: skip

VERBS = {verb.name: verb for verbs in VERBS_BY_TASK.values() for verb in verbs}
