"""Segments in remote storage read as the local ones that they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.tiered import TieredLogs, UnknownLayoutError, open_tiered
from kafkascan.tiered.tier_store import FolderStore
from tests.support.paths import GOLDEN
from tests.support.s3_server import s3_server
from tests.support.tiers import KEY_ID, TOPIC_ID, AivenTier, Cipher, new_cipher, put_local

DATA = GOLDEN / "kafka-4.4.0" / "data"
NAMES = ("transactions-0", "small-segments-0", "idempotent-0")


@pytest.fixture(scope="module")
def private_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "private.pem"


@pytest.fixture(scope="module")
def cipher(private_key: Path) -> Cipher:
    return new_cipher(private_key)


def require_the_local_logs(tier: TieredLogs) -> None:
    """Compare all files and records with those on the broker's disk."""
    assert [one.topic for one in tier.partitions] == sorted(name[:-2] for name in NAMES)
    for partition in tier.partitions:
        local = DATA / f"{partition.topic}-{partition.partition}"
        logs = sorted(local.glob("*.log"))
        assert [one.file_name for one in partition.log_segments] == [log.name for log in logs]
        for segment, log in zip(partition.log_segments, logs, strict=True):
            with segment.open() as source:
                assert bytes(source.window(0, source.size)) == log.read_bytes()
            assert np.array_equal(ks.scan_batches(segment).batches, ks.scan_batches(log).batches)
            if log.stat().st_size:
                assert ks.read_records(segment).to_arrow().equals(ks.read_records(log).to_arrow())
        for name in partition.folder.names():
            if (local / name).exists() and name != "partition.metadata":
                assert partition.folder.read(name) == (local / name).read_bytes()
        assert {"leader-epoch-checkpoint"} <= set(partition.folder.names())
        assert partition.topic_id == TOPIC_ID
    counts = ks.count_records(tier).counts["records"]
    local_counts = [ks.count_records(DATA / name).counts["records"][0] for name in sorted(NAMES)]
    assert counts.tolist() == local_counts


@pytest.mark.parametrize("chunk_size", [200, 1000, 1 << 22])
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_aiven(
    tmp_path: Path,
    chunk_size: int,
    is_compressed: bool,
    is_encrypted: bool,
    request: pytest.FixtureRequest,
) -> None:
    cipher = request.getfixturevalue("cipher") if is_encrypted else None
    keys = {KEY_ID: request.getfixturevalue("private_key")} if is_encrypted else None
    stored = AivenTier(tmp_path, "backups/eu-", chunk_size, is_compressed, cipher)
    for name in NAMES:
        stored.put_partition(DATA / name)
    tier = open_tiered(tmp_path, keys=keys)
    assert (tier.layout, tier.problems) == ("aiven", [])
    # The prefix does not end at a slash: the name of the topic contains it.
    tier = open_tiered(tmp_path / "backups", keys=keys)
    assert {one.topic for one in tier.remote_segments} == {f"eu-{name[:-2]}" for name in NAMES}
    assert {one.is_encrypted for one in tier.remote_segments} == {is_encrypted}
    assert {one.is_compressed for one in tier.remote_segments} == {is_compressed}


def test_a_private_key_is_checked_once_and_its_file_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tier may have 100,000 segments, and checking an RSA key of 4096 bits takes 50 ms."""
    file = tmp_path / "private.pem"
    stored = AivenTier(tmp_path / "tier", cipher=new_cipher(file))
    stored.put_partition(DATA / "small-segments-0")
    from Crypto.PublicKey import RSA

    checked = []
    import_key = RSA.import_key
    monkeypatch.setattr(RSA, "import_key", lambda pem: checked.append(pem) or import_key(pem))
    tier = open_tiered(tmp_path / "tier", keys={KEY_ID: file}, threads=1)
    assert len(tier.remote_segments) > 2
    assert ks.count_records(tier, threads=1).counts["records"][0] > 0
    assert len(checked) == 1
    new_cipher(file)  # another key pair
    with pytest.raises(NoLogsError, match="another private key"):
        open_tiered(tmp_path / "tier", keys={KEY_ID: file})


@pytest.mark.parametrize("kind", ["plain", "compressed", "encrypted", "both"])
def test_files_and_records_are_the_local_ones(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    is_encrypted = kind in ("encrypted", "both")
    cipher = request.getfixturevalue("cipher") if is_encrypted else None
    stored = AivenTier(tmp_path, "tier/", 700, kind in ("compressed", "both"), cipher)
    for name in NAMES:
        stored.put_partition(DATA / name)
    keys = {KEY_ID: request.getfixturevalue("private_key")} if is_encrypted else None
    require_the_local_logs(open_tiered(tmp_path, keys=keys, threads=2))


@pytest.mark.parametrize("kind", ["plain", "both", "local"])
def test_a_tier_in_a_bucket(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("obstore")
    cipher = request.getfixturevalue("cipher") if kind == "both" else None
    stored = AivenTier(tmp_path, "tier/", 2_000, kind == "both", cipher)
    for name in NAMES:
        if kind == "local":
            put_local(tmp_path, DATA / name)
        else:
            stored.put_partition(DATA / name)
    keys = {KEY_ID: request.getfixturevalue("private_key")} if kind == "both" else None
    with s3_server(f"tier-{kind}") as server:
        url = server.put_folder(tmp_path, "prefix")
        requests = server.count_requests()
        tier = open_tiered(url, keys=keys, storage_options=server.options)
        assert tier.problems == []
        assert requests() <= 2 + (0 if kind == "local" else len(tier.remote_segments))
        require_the_local_logs(tier)
        audits = [ks.audit(one, deep=True) for one in (tier, open_tiered(tmp_path, keys=keys))]
        assert [one.symbol for one in audits[0].findings] == [
            one.symbol for one in audits[1].findings
        ]


def test_local_tiered_storage(tmp_path: Path) -> None:
    for name in NAMES:
        put_local(tmp_path, DATA / name)
    tier = open_tiered(tmp_path)
    assert (tier.layout, tier.problems) == ("local", [])
    require_the_local_logs(tier)


def test_a_copy_of_a_data_directory(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / "0110" / name).mkdir(parents=True)
        for file in (DATA / name).iterdir():
            (tmp_path / "0110" / name / file.name).write_bytes(file.read_bytes())
        (tmp_path / "0110" / name / "offset.wm").write_bytes(b"0")
    tier = open_tiered(tmp_path)
    assert (tier.layout, tier.problems) == ("pinterest", [])
    logs = [one for name in NAMES for one in (DATA / name).glob("*.log")]
    assert sum(len(one.log_segments) for one in tier.partitions) == len(logs)


def test_whole_log_functions_take_a_tier(tmp_path: Path) -> None:
    stored = AivenTier(tmp_path / "tier", "", 500, is_compressed=True)
    stored.put_partition(DATA / "transactions-0")
    tier = open_tiered(tmp_path / "tier")
    # Without the log of the coordinator, which a tier does not have.
    local = Path(shutil.copytree(DATA / "transactions-0", tmp_path / "local" / "transactions-0"))
    assert ks.scan_log_dir(tier).to_arrow().num_rows == ks.scan_log_dir(local).to_arrow().num_rows
    committed = ks.read_records(tier.partitions[0], isolation="read_committed").to_arrow()
    assert committed.equals(ks.read_records(local, isolation="read_committed").to_arrow())
    found = [(one.symbol, one.position) for one in ks.audit(tier, deep=True).alarms]
    assert found == [(one.symbol, one.position) for one in ks.audit(local, deep=True).alarms]
    logs = sorted(local.glob("*.log"))
    for segment, log in zip(tier.partitions[0].log_segments, logs, strict=True):
        found_at, expected = ks.lookup_offset(segment, 20), ks.lookup_offset(log, 20)
        assert (found_at and found_at.position) == (expected and expected.position)


def test_what_cannot_be_read_is_a_problem(tmp_path: Path, cipher: Cipher) -> None:
    stored = AivenTier(tmp_path, cipher=cipher)
    stored.put_partition(DATA / "small-segments-0")
    with pytest.raises(NoLogsError, match=r"key pair 'key-2026'; given keys: none"):
        open_tiered(tmp_path)
    plain = AivenTier(tmp_path, "plain/")
    names = plain.put_partition(DATA / "small-segments-0")
    (tmp_path / f"{names[0]}.rsm-manifest").unlink()
    (tmp_path / f"{names[1]}.log").unlink()
    (tmp_path / f"{names[2]}.rsm-manifest").write_text("{")
    with (tmp_path / f"{names[3]}.log").open("ab") as log:
        log.write(b"x")
    (tmp_path / f"{names[4]}.indexes").unlink()
    (tmp_path / "plain" / "README").write_text("")
    tier = open_tiered(tmp_path / "plain")
    found = sorted((one.symbol, one.key.rpartition(".")[2]) for one in tier.problems)
    assert found == [
        ("BAD_MANIFEST", "rsm-manifest"), ("MISSING_OBJECT", "indexes"), ("MISSING_OBJECT", "log"),
        ("NOT_UPLOADED", "indexes"), ("NOT_UPLOADED", "log"), ("SIZE_MISMATCH", "log"),
        ("UNKNOWN_OBJECT", "README"),
    ]  # fmt: skip
    assert len(tier.remote_segments) == len(names) - 3


def test_one_of_two_uploads_is_read(tmp_path: Path) -> None:
    log = min((DATA / "transactions-0").glob("*.log"))
    stored = AivenTier(tmp_path)
    for number in (9, 4):
        stored.put_segment(log, 5, number)
    tier = open_tiered(tmp_path)
    (segment,) = tier.remote_segments
    assert segment.event_timestamp == 1_714_000_000_009
    (problem,) = tier.problems
    assert problem.symbol == "OTHER_COPY"


@pytest.mark.parametrize(
    ("key", "system"),
    [
        (f"0/{TOPIC_ID}/{TOPIC_ID}/3/00000000000000000000_0_v0.segment", "Confluent"),
        ("a1b2c3d4/kafka/orders/0_18/0-99-4096-1-v1.log.2", "Redpanda"),
        ("00000000/meta/kafka/orders/0_18/manifest.bin", "Redpanda"),
        (f"warehouse/orders/metadata/{TOPIC_ID}.puffin", "Iceberg"),
    ],
)
def test_layouts_that_are_not_read_are_named(tmp_path: Path, key: str, system: str) -> None:
    (tmp_path / key).parent.mkdir(parents=True)
    (tmp_path / key).write_bytes(b"x")
    with pytest.raises(UnknownLayoutError, match=system):
        open_tiered(tmp_path)


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NoLogsError, match="none of the 1 objects"):
        open_tiered(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_tiered(tmp_path / "missing")
    with pytest.raises(ValueError, match="layout must be auto, aiven, local, pinterest"):
        open_tiered(tmp_path, layout="s3")


def test_an_object_that_is_deleted_while_a_folder_is_listed_is_none(tmp_path: Path) -> None:
    for name in ("0.log", "10.log"):
        (tmp_path / name).write_bytes(b"content")
    (tmp_path / "broken").symlink_to("nowhere")
    found = FolderStore(tmp_path).objects()
    listed = next(found).key  # the others have been listed, too, but not their sizes
    other = {"0.log": "10.log", "10.log": "0.log"}.get(listed, "0.log")
    (tmp_path / other).unlink()
    keys = {listed, *(one.key for one in found)}
    assert keys == {"0.log", "10.log", "broken"} - {other}
