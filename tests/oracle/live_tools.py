"""Kafka's own tools against a running broker: transactions, offsets, consumer groups."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command
from tests.oracle.live_recovery import Partition
from tests.support.waiting import HANG_SECONDS

Row = dict[str, str]


def transactions_tool(class_paths: ClassPaths, servers: str, *arguments: str) -> list[Row]:
    """Run kafka-transactions; return the rows of its table."""
    printed = _run(
        class_paths,
        "org.apache.kafka.tools.TransactionsCommand",
        ["--bootstrap-server", servers, *arguments],
    )
    lines = [line.split("\t") for line in printed.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] if rows else []


def end_offsets(class_paths: ClassPaths, servers: str, topic: str) -> dict[Partition, int]:
    """Run kafka-get-offsets."""
    printed = _run(
        class_paths,
        "org.apache.kafka.tools.GetOffsetShell",
        ["--bootstrap-server", servers, "--topic", topic],
    )
    rows = [line.split(":") for line in printed.splitlines()]
    return {(name, int(partition)): int(offset) for name, partition, offset in rows}


def reset_offsets(class_paths: ClassPaths, servers: str, groups: Sequence[str], plan: Path) -> str:
    """Run kafka-consumer-groups --reset-offsets --from-file; return what it prints."""
    names = [argument for group in groups for argument in ("--group", group)]
    return _run(
        class_paths,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        [
            "--bootstrap-server", servers, "--reset-offsets", *names, "--from-file", str(plan),
            "--execute",
        ],
    )  # fmt: skip


def last_stable_offsets(servers: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Return the last stable offsets of partitions."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    asked = {TopicPartition(*one): OffsetSpec.latest() for one in partitions}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    return {
        (str(one.topic), int(one.partition)): int(answer.result().offset)
        for one, answer in answers.items()
    }


def move_log(class_paths: ClassPaths, servers: str, log: Partition, data_dir: Path) -> None:
    """Run kafka-reassign-partitions: move the log of a partition to another data dir."""
    topic, partition = log
    plan = {"topic": topic, "partition": partition, "replicas": [1], "log_dirs": [str(data_dir)]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": [plan]}, file)
        file.flush()
        _run(
            class_paths,
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            [
                "--bootstrap-server", servers, "--execute", "--reassignment-json-file", file.name,
            ],
        )  # fmt: skip


def _run(class_paths: ClassPaths, main: str, arguments: Sequence[str]) -> str:
    command = java_command(class_paths.dump, main, arguments)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{main} {arguments}: {done.stdout}\n{done.stderr}")
    return done.stdout
