"""The commands by task, with what the help prints about each: a line, and two examples.

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
        Verb("restore", "tier_commands",
             "Copy partitions from tiered storage for a broker."),
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

# Two command lines for the end of each command's help. Tests run them on copies of logs.
EXAMPLES: dict[str, tuple[str, str]] = {
    "info": (
        "info /var/lib/kafka",
        "info /var/lib/kafka --by codec,magic",
    ),
    "batches": (
        "batches /var/lib/kafka/orders-0 --tail 10 --verify",
        "batches /var/lib/kafka/orders-0 --from-offset 28 --format csv",
    ),
    "records": (
        "records /var/lib/kafka/orders-0 --around 30",
        "records /var/lib/kafka/orders-0 --isolation read_committed --output orders.parquet",
    ),
    "count": (
        "count /var/lib/kafka",
        "count /var/lib/kafka/orders-0 --format json",
    ),
    "txns": (
        "txns /var/lib/kafka --state open",
        "txns /var/lib/kafka/orders-0 --output transactions.csv",
    ),
    "producers": (
        "producers /var/lib/kafka",
        "producers /var/lib/kafka/orders-0 --wide",
    ),
    "advise": (
        "advise /var/lib/kafka",
        "advise /var/lib/kafka/orders-0 --codec zstd",
    ),
    "dump-log": (
        "dump-log --files /var/lib/kafka/orders-0/00000000000000000000.log --print-data-log",
        "dump-log --files /var/lib/kafka/orders-0/00000000000000000000.index",
    ),
    "groups": (
        "groups /var/lib/kafka",
        "groups /var/lib/kafka --show members",
    ),
    "txn-state": (
        "txn-state /var/lib/kafka",
        "txn-state /var/lib/kafka --format jsonl",
    ),
    "share-state": (
        "share-state /var/lib/kafka",
        "share-state /var/lib/kafka --show batches",
    ),
    "metadata": (
        "metadata /var/lib/kafka",
        "metadata /var/lib/kafka --show partitions",
    ),
    "remote-segments": (
        "remote-segments /var/lib/kafka",
        "remote-segments /var/lib/kafka --output remote.parquet",
    ),
    "verify": (
        "verify /var/lib/kafka",
        "verify /var/lib/kafka --topic orders",
    ),
    "audit": (
        "audit /var/lib/kafka --alarms",
        "audit /var/lib/kafka/orders-0 --deep --output findings.json",
    ),
    "index": (
        "index check /var/lib/kafka",
        "index lookup /var/lib/kafka/orders-0 --offset 30",
    ),
    "report": (
        "report /var/lib/kafka --output report.html",
        "report /var/lib/kafka/orders-0 --output orders.html --title 'Orders, before the upgrade'",
    ),
    "recover": (
        "recover /var/lib/kafka",
        "recover /var/lib/kafka --write --truncate",
    ),
    "salvage": (
        "salvage /var/lib/kafka/orders-0",
        "salvage /var/lib/kafka/orders-0 /backup/orders-0",
    ),
    "restore": (
        "restore /mnt/tier",
        "restore /mnt/tier /backup/restored --topic orders",
    ),
    "convert": (
        "convert /var/lib/kafka/orders-0 --compression-type zstd --output /backup/orders-0",
        "convert /var/lib/kafka/orders-0 --compression-type none --in-place",
    ),
    "restamp": (
        "restamp /var/lib/kafka/orders-0 --partition-leader-epoch 7 --output /backup/orders-0",
        "restamp /var/lib/kafka/orders-0 --offset-shift 1000 --output /backup/orders-0",
    ),
    "scrub": (
        "scrub /var/lib/kafka/orders-0 --key key-10 --output /backup/orders-0",
        "scrub /var/lib/kafka/orders-0 --key key-10 --in-place",
    ),
    "diff": (
        "diff /var/lib/kafka /backup/kafka",
        "diff /var/lib/kafka/orders-0 /backup/kafka/orders-0 --wide",
    ),
    "spark": (
        "spark verify /var/lib/kafka --format jsonl",
        "spark export /var/lib/kafka --output records",
    ),
}
