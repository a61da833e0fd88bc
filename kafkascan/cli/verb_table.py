"""The commands by task, with what the help prints about each: a line, and two examples.

A command's module is imported when the command runs, so that ``kafkascan --help`` and shell
completion load neither NumPy nor the library.
"""

from __future__ import annotations

from typing import NamedTuple

# A task; its commands, each with its module in `kafkascan.cli.verbs` and the first line of its
# help; two command lines for the end of that help, which tests run on copies of logs.
_TABLE = """\
Look
  info (segment_commands): Summarize segment files from their batch headers.
    info /var/lib/kafka
    info /var/lib/kafka --by codec,magic
  batches (segment_commands): List the batches of segment files, a row per batch header.
    batches /var/lib/kafka/orders-0 --tail 10 --verify
    batches /var/lib/kafka/orders-0 --from-offset 28 --format csv
  records (record_commands): List records: offset, timestamp, key, value and headers.
    records /var/lib/kafka/orders-0 --around 30
    records /var/lib/kafka/orders-0 --isolation read_committed --output orders.parquet
  count (log_commands): Count records: all, committed, aborted and open ones.
    count /var/lib/kafka
    count /var/lib/kafka/orders-0 --format json
  txns (log_commands): List transactions: open, hanging, aborted, committed.
    txns /var/lib/kafka --state open
    txns /var/lib/kafka/orders-0 --output transactions.csv
  producers (log_commands): List producers: volume, batching, codecs, sequence errors.
    producers /var/lib/kafka
    producers /var/lib/kafka/orders-0 --wide
  advise (log_commands): Estimate the saving of other codecs by compressing samples.
    advise /var/lib/kafka
    advise /var/lib/kafka/orders-0 --codec zstd
  dump-log (dump_commands): Print files as Kafka's kafka-dump-log does, line for line.
    dump-log --files /var/lib/kafka/orders-0/00000000000000000000.log --print-data-log
    dump-log --files /var/lib/kafka/orders-0/00000000000000000000.index
Ask
  groups (state_commands): List committed offsets, consumer groups and members.
    groups /var/lib/kafka
    groups /var/lib/kafka --show members
  txn-state (state_commands): List transactional ids and the state of their transactions.
    txn-state /var/lib/kafka
    txn-state /var/lib/kafka --format jsonl
  share-state (state_commands): List start offsets and delivery states of share groups.
    share-state /var/lib/kafka
    share-state /var/lib/kafka --show batches
  metadata (state_commands): List the brokers, topics and settings of the cluster.
    metadata /var/lib/kafka
    metadata /var/lib/kafka --show partitions
  remote-segments (state_commands): List the segments in remote storage (tiered storage).
    remote-segments /var/lib/kafka
    remote-segments /var/lib/kafka --output remote.parquet
  schemas (schema_commands): List and export the schemas of a schema registry's topic.
    schemas /var/lib/kafka
    schemas usage /var/lib/kafka --topic orders
  sql (sql_commands): Query records, batches and other tables with SQL (DuckDB).
    sql "SELECT topic, sum(size_in_bytes) FROM batches GROUP BY ALL" /var/lib/kafka
    sql "SELECT max(timestamp) FROM records WHERE utf8(key) LIKE 'key-1%'" /var/lib/kafka
Check
  verify (segment_commands): Verify the checksum of every batch in segment files.
    verify /var/lib/kafka
    verify /var/lib/kafka --topic orders
  audit (log_commands): Check logs for damage, inconsistencies and risks.
    audit /var/lib/kafka --alarms
    audit /var/lib/kafka/orders-0 --deep --output findings.json
  index (index_commands): Show, check, build and search index files and checkpoints.
    index check /var/lib/kafka
    index lookup /var/lib/kafka/orders-0 --offset 30
  report (log_commands): Write an HTML page about logs: findings, plots and tables.
    report /var/lib/kafka --output report.html
    report /var/lib/kafka/orders-0 --output orders.html --title 'Orders, before the upgrade'
Repair
  recover (recovery_commands): Recover logs as a broker does after an unclean shutdown.
    recover /var/lib/kafka
    recover /var/lib/kafka --write --truncate
  salvage (recovery_commands): Copy the intact batches of damaged logs to new logs.
    salvage /var/lib/kafka/orders-0
    salvage /var/lib/kafka/orders-0 /backup/orders-0
  restore (tier_commands): Copy partitions from tiered storage for a broker.
    restore /mnt/tier
    restore /mnt/tier /backup/restored --topic orders
Change
  convert (rewrite_commands): Convert a log to another message format or codec.
    convert /var/lib/kafka/orders-0 --compression-type zstd --output /backup/orders-0
    convert /var/lib/kafka/orders-0 --compression-type none --in-place
  restamp (rewrite_commands): Rewrite header fields: offsets, leader epoch, timestamps.
    restamp /var/lib/kafka/orders-0 --partition-leader-epoch 7 --output /backup/orders-0
    restamp /var/lib/kafka/orders-0 --offset-shift 1000 --output /backup/orders-0
  scrub (rewrite_commands): Remove records by key or by offset, as compaction does.
    scrub /var/lib/kafka/orders-0 --key key-10 --output /backup/orders-0
    scrub /var/lib/kafka/orders-0 --key key-10 --in-place
Compare
  diff (log_commands): Compare replicas, a backup or a mirror by batch headers.
    diff /var/lib/kafka /backup/kafka
    diff /var/lib/kafka/orders-0 /backup/kafka/orders-0 --wide
Many brokers
  spark (spark_commands): Run jobs over the logs of many brokers on Spark.
    spark verify /var/lib/kafka --format jsonl
    spark export /var/lib/kafka --output records
"""


class Verb(NamedTuple):
    """A command: its name, its module, the first line of its help, and two examples."""

    name: str
    module: str
    summary: str
    examples: tuple[str, ...]

    @property
    def attribute(self) -> str:
        """Name of the command in its module."""
        return self.name.replace("-", "_")


def _parse(table: str) -> dict[str, tuple[Verb, ...]]:
    tasks: dict[str, tuple[Verb, ...]] = {}
    for line in table.splitlines():
        task = list(tasks)[-1] if tasks else ""
        if not line.startswith(" "):
            tasks[line] = ()
        elif not line.startswith("    "):
            head, _, summary = line.strip().partition(": ")
            name, module = head.rstrip(")").split(" (")
            tasks[task] += (Verb(name, module, summary, ()),)
        else:
            *others, verb = tasks[task]
            tasks[task] = (*others, verb._replace(examples=(*verb.examples, line.strip())))
    return tasks


VERBS_BY_TASK = _parse(_TABLE)
VERBS = {verb.name: verb for verbs in VERBS_BY_TASK.values() for verb in verbs}
