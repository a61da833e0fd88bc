"""A broker serves partitions that were converted, restamped and scrubbed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.dump import partition_directories
from tests.oracle.live_lookups import consume_all
from tests.oracle.live_recovery import (
    SHORT_SESSIONS,
    Load,
    Records,
    Written,
    copy_data_dir,
    fill_and_kill,
    start_and_time,
)

pytestmark = pytest.mark.oracle

_SECRET = b"key-7"


@pytest.fixture(scope="module")
def killed(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return fill_and_kill(tmp_path_factory.mktemp("killed"), class_paths, Load(partitions=1))


def _rewrite(directory: Path) -> None:
    """Rewrite each topic in another way, in place or by replacing its directory."""
    other = directory.with_name("other")
    keep = ks.without_keys([_SECRET])
    if directory.name == "idempotent-none-0":
        result = ks.convert_log(directory, in_place=True, to_magic=1)
        assert sum(one.report.lost["idempotent_batches"] for one in result.segments) > 0
        assert result.findings == []
        ks.convert_log(directory, in_place=True, to_magic=2, compression_type="lz4")
    elif directory.name == "idempotent-gzip-0":
        ks.convert_log(directory, other, compression_type="zstd")
    elif directory.name == "idempotent-snappy-0":
        ks.restamp_log(directory, other, partition_leader_epoch=0)
    elif directory.name == "idempotent-lz4-0":
        ks.scrub_log(directory, other, keep=keep)
    elif directory.name in ("idempotent-zstd-0", "transactional-0"):
        ks.scrub_log(directory, keep=keep, in_place=True)
    if other.exists():
        shutil.rmtree(directory)
        other.rename(directory)


def _expected(written: Records) -> Records:
    return {
        (topic, partition): {
            offset: record
            for offset, record in records.items()
            if record[0] != _SECRET or topic.endswith(("none", "gzip", "snappy"))
        }
        for (topic, partition), records in written.items()
    }


def test_a_broker_serves_what_was_written_anew(
    killed: Written, class_paths: ClassPaths, tmp_path: Path
) -> None:
    root = tmp_path / "broker"
    data_dir = copy_data_dir(killed.data_dir, root)
    ks.recover(data_dir, write=True, truncate=True, recovery_point=0)
    for directory in partition_directories(data_dir):
        _rewrite(directory)
    done = ks.recover(data_dir, write=True, truncate=True, recovery_point=0, backup=False)
    assert done.is_marked_clean
    assert sum(len(one.changes) for one in done.partitions) == 0, "all was in order before"
    broker = KafkaBroker(root, class_paths, SHORT_SESSIONS)
    try:
        start = start_and_time(broker)
        assert start.recovered_logs == start.recovered_segments == 0
        with pytest.raises(ks.format.LogDirInUseError):
            ks.scrub_log(
                data_dir / "idempotent-lz4-0", keep=ks.rewrite.without_offsets(0), in_place=True
            )
        found = consume_all(broker.bootstrap_servers, killed.acknowledged)
        committed = killed.committed()
        transactional = {one: of for one, of in committed.items() if one[0] == "transactional"}
        read = consume_all(broker.bootstrap_servers, transactional, committed_only=True)
    finally:
        broker.kill()
    for partition, records in _expected(killed.acknowledged).items():
        assert {offset: found[partition].get(offset) for offset in records} == records
        assert len(records) > 500
        if not partition[0].endswith(("none", "gzip", "snappy")):
            assert _SECRET not in {key for key, _ in found[partition].values()}
    assert read == _expected(transactional)
    for name in ("idempotent-lz4-0", "idempotent-zstd-0", "transactional-0"):
        assert not any(_SECRET in key for key in _keys(data_dir / name))


def _keys(directory: Path) -> set[bytes]:
    logs = sorted(directory.glob("*.log"))
    return {key or b"" for log in logs for key in ks.read_records(log).items("key")}
