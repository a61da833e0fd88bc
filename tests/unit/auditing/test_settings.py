"""Limits of the caller, and settings of topics in the metadata log."""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.auditing.header_checks import Limits, size_limit
from kafkascan.auditing.log_audit import AuditedLog, LogAudit
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.metadata_log import TopicConfig, read_metadata_log
from tests.support.audit_damage import edit
from tests.support.audits import alarms
from tests.support.metadata_logs import BROKER, TOPIC, write_configs
from tests.support.partitions import HealthyPartition


def test_a_limit_of_the_caller(partition: HealthyPartition) -> None:
    partition.write()
    assert alarms(partition.folder, max_message_bytes=100) == {"OVERSIZED_BATCH"}


def test_no_checksums_no_records(partition: HealthyPartition) -> None:
    partition.write()
    edit(1, ".log", 500, b"\xff")(partition)
    assert ks.audit(partition.folder, verify=False).findings == []


def test_settings_are_the_topic_s_own_or_the_brokers(tmp_path: Path) -> None:
    write_configs(
        tmp_path,
        (TOPIC, "orders", "index.interval.bytes", "200"),
        (TOPIC, "orders", "segment.bytes", "100"),
        (TOPIC, "other", "index.interval.bytes", "300"),
        (TOPIC, "other", "index.interval.bytes", None),
        (BROKER, "", "log.index.interval.bytes", "5"),
        (BROKER, "", "message.max.bytes", "6"),
        (BROKER, "1", "message.max.bytes", "7"),
    )
    metadata = read_metadata_log(partition_dir(tmp_path / "__cluster_metadata-0"))
    assert metadata.defaults == TopicConfig(interval_bytes=5, max_message_bytes=6)
    assert metadata.config_of("orders") == TopicConfig(interval_bytes=200, max_message_bytes=6)
    assert metadata.config_of("other") == metadata.config_of("?") == metadata.defaults


def test_a_limit_of_the_caller_overrides_that_setting_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HealthyPartition(tmp_path / "orders-0").write()
    write_configs(
        tmp_path,
        (TOPIC, "orders", "max.message.bytes", "1000000"),
        (TOPIC, "orders", "index.interval.bytes", "200"),
    )
    configs = {}

    def start(audited: AuditedLog, limits: Limits, names: Collection[str]) -> LogAudit:
        configs[audited.log.name] = audited.config, limits.max_message_bytes
        return LogAudit(audited, limits, names)

    monkeypatch.setattr("kafkascan.auditing.runner.LogAudit", start)
    assert set(oversized(tmp_path, max_message_bytes=80)) == {"orders", "__cluster_metadata"}
    config = TopicConfig(interval_bytes=200, max_message_bytes=1_000_000)
    assert configs["orders-0"] == (config, 80)
    limits = Limits(now_ms=0, max_message_bytes=80)
    assert size_limit(limits, config) == (80, "the limit", ks.Severity.WARNING)
    assert size_limit(Limits(now_ms=0), config) == (1_000_000, "the topic's limit", None)


def oversized(path: Path, **options: Any) -> dict[str | None, str]:
    found = ks.audit(path, **options).findings
    return {one.topic: one.message for one in found if one.symbol == "OVERSIZED_BATCH"}


def test_limits_of_the_metadata_log(tmp_path: Path) -> None:
    for topic in ("orders", "other"):
        HealthyPartition(tmp_path / f"{topic}-0").write()
    largest = "max.message.bytes"
    assert oversized(tmp_path) == {}
    write_configs(tmp_path, (TOPIC, "orders", largest, "100"))
    said = {"orders": "a batch is larger than the topic's limit of 100 bytes"}
    assert oversized(tmp_path) == oversized(tmp_path / "orders-0") == said
    assert not any(one.alarms for one in [ks.audit(tmp_path / "orders-0")])
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path, "", filter=lambda one: None if one.name.endswith("tar") else one)
    assert oversized(tmp_path / "all.tar") == said
    # The broker's default is that of topics without their own; the metadata log has neither.
    default = (BROKER, "", "message.max.bytes", "90")
    write_configs(tmp_path, default, (TOPIC, "orders", largest, "1000000"))
    assert set(oversized(tmp_path)) == {"other"}
    write_configs(tmp_path, default, (BROKER, "", "message.max.bytes", None))
    assert oversized(tmp_path) == {}
    write_configs(tmp_path, default)
    assert oversized(tmp_path, max_message_bytes=1_000_000) == {}
    assert set(oversized(tmp_path, max_message_bytes=80)) > {"orders", "other"}
    # Values that are not numbers in Kafka's range are ignored.
    write_configs(tmp_path, (TOPIC, "orders", largest, "9" * 5000), (TOPIC, "o", largest, "-1"))
    assert oversized(tmp_path) == {}


def test_a_message_with_garbage_after_it_is_not_read(tmp_path: Path) -> None:
    """``MetadataRecordSerde``: "Found 1 byte(s) of garbage after 4"."""
    setting = (TOPIC, "orders", "max.message.bytes", "200")
    for garbage, expected in ((b"", 200), (b"\0", None)):
        write_configs(tmp_path, setting, topics=["orders"], garbage=garbage)
        metadata = read_metadata_log(partition_dir(tmp_path / "__cluster_metadata-0"))
        assert metadata.config_of("orders").max_message_bytes == expected
        assert metadata.names == {"orders"}
