"""Audits of remote storage: its objects, manifests, and the lineage of leader epochs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.auditing.finding_kinds import TIER_KINDS, FoundInLog
from kafkascan.auditing.tiers.tier_audit import UploadRange, check_lineage
from kafkascan.tiered import open_tiered
from tests.support.paths import GOLDEN
from tests.support.tiers import AivenTier, headers_of, new_cipher, put_local
from tests.unit.auditing.test_cluster_records import KINDS as OF_CLUSTER

DATA = GOLDEN / "kafka-4.4.0" / "data"
LOG = DATA / "small-segments-0"


class Stored:
    """A healthy partition in remote storage, to be damaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = AivenTier(root).put_partition(LOG)

    def path(self, number: int, suffix: str) -> Path:
        return self.root / f"{self.names[number]}.{suffix}"

    def set(self, number: int, **fields: Any) -> None:
        path = self.path(number, "rsm-manifest")
        manifest = json.loads(path.read_bytes())
        manifest["remoteLogSegmentMetadata"] |= fields
        path.write_text(json.dumps(manifest))

    def drop(self, number: int) -> None:
        for suffix in ("log", "indexes", "rsm-manifest"):
            self.path(number, suffix).unlink()

    def said(self, number: int) -> dict[str, Any]:
        manifest = json.loads(self.path(number, "rsm-manifest").read_bytes())
        found: dict[str, Any] = manifest["remoteLogSegmentMetadata"]
        return found

    def audit(self) -> ks.auditing.Audit:
        return ks.audit(open_tiered(self.root), deep=True)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


DAMAGE: dict[str, tuple[Callable[[Stored], object], str]] = {
    "no manifest": (lambda one: one.path(0, "rsm-manifest").unlink(), "NOT_UPLOADED"),
    "no log": (lambda one: one.path(0, "log").unlink(), "MISSING_OBJECT"),
    "no indexes": (lambda one: one.path(2, "indexes").unlink(), "MISSING_OBJECT"),
    "no JSON": (lambda one: one.path(0, "rsm-manifest").write_text("{"), "BAD_MANIFEST"),
    "longer log": (lambda one: append(one.path(0, "log"), b"x"), "SIZE_MISMATCH"),
    "strange object": (lambda one: one.root.joinpath("README").write_text(""), "UNKNOWN_OBJECT"),
    "two uploads": (
        lambda one: AivenTier(one.root).put_segment(min(LOG.glob("*.log")), 2, 99), "OTHER_COPY",
    ),
    "start": (lambda one: one.set(1, startOffset=1 << 62), "MANIFEST_MISMATCH"),
    "negative end": (lambda one: one.set(1, endOffset=-(1 << 63)), "MANIFEST_MISMATCH"),
    "end": (lambda one: one.set(1, endOffset=(1 << 63) - 1), "MANIFEST_MISMATCH"),
    "latest time": (
        lambda one: one.set(1, maxTimestampMs=one.said(1)["maxTimestampMs"] + 1),
        "MANIFEST_MISMATCH",
    ),
    "epochs": (
        lambda one: one.set(1, segmentLeaderEpochs={"7": one.said(1)["startOffset"]}),
        "MANIFEST_MISMATCH",
    ),
    "lost segment": (lambda one: one.drop(1), "TIER_GAP"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, stored: Stored) -> None:
    damage, symbol = DAMAGE[name]
    assert stored.audit().alarms == []
    damage(stored)
    audit = stored.audit()
    assert symbol in {one.symbol for one in audit.findings}, audit
    for one in audit.findings:
        assert one.advice
        assert one.message
    assert len(audit.to_arrow()) == len(audit)


def test_healthy_tiers_have_no_findings_of_their_own(tmp_path: Path) -> None:
    for name in ("transactions-0", "small-segments-0", "idempotent-0"):
        AivenTier(tmp_path / "aiven", is_compressed=True).put_partition(DATA / name)
        put_local(tmp_path / "local", DATA / name)
    for layout in ("aiven", "local"):
        found = ks.audit(open_tiered(tmp_path / layout), deep=True)
        assert found.segments
        assert not set(TIER_KINDS) & {one.symbol for one in found.findings}


def test_a_finding_names_its_partition_and_object(stored: Stored) -> None:
    stored.path(1, "indexes").unlink()
    (found,) = (one for one in stored.audit().findings if one.symbol == "MISSING_OBJECT")
    assert (found.topic, found.partition) == ("small-segments", 0)
    assert found.offset == stored.said(1)["startOffset"]
    assert found.path == str(stored.path(1, "indexes"))


def test_a_lost_segment_is_named_by_its_offsets(stored: Stored) -> None:
    lost = stored.said(1)
    stored.drop(1)
    (gap,) = stored.audit().alarms
    assert gap.message == (
        f"no segment serves the offsets from {lost['startOffset']} to {lost['endOffset']}"
    )


def test_uploads_of_another_leader_may_overlap(stored: Stored, tmp_path: Path) -> None:
    """The other leader rolled its segments at other offsets: half of one, and the next."""
    first, second, third = sorted(LOG.glob("*.log"))[1:4]
    data = first.read_bytes()
    batches = headers_of(data)
    middle = batches[len(batches) // 2][0]
    assert middle > int(first.stem), "a segment of several batches"
    at = data.index(middle.to_bytes(8, "big"))
    folder = tmp_path / "other" / LOG.name
    folder.mkdir(parents=True)
    for name in ("leader-epoch-checkpoint", f"{third.stem}.snapshot"):
        (folder / name).write_bytes((LOG / name).read_bytes())
    log = folder / f"{middle:020}.log"
    log.write_bytes(data[at:] + second.read_bytes())
    tier = stored.root / "tier"
    both = AivenTier(tier)
    both.put_partition(LOG)
    name = both.put_segment(log, int(third.stem), 70)
    assert ks.audit(open_tiered(tier), deep=True).alarms == []
    # The overlapping upload serves what another one has lost.
    for suffix in ("log", "indexes", "rsm-manifest"):
        (tier / f"{stored.names[2]}.{suffix}").unlink()
    assert ks.audit(open_tiered(tier), deep=True).alarms == []
    (tier / f"{name}.rsm-manifest").unlink()
    assert {one.symbol for one in ks.audit(open_tiered(tier)).alarms} == {"TIER_GAP"}


LINEAGES: list[tuple[str, list[tuple[int, int, list[tuple[int, int]]]], list[str]]] = [
    ("one epoch", [(0, 10, [(0, 0)]), (10, 20, [(0, 0)])], []),
    ("overlap", [(0, 10, [(0, 0)]), (5, 20, [(0, 0), (1, 12)])], []),
    ("replaced end", [(0, 10, [(0, 0)]), (10, 20, [(0, 0)]), (8, 25, [(0, 0), (2, 15)])], []),
    ("gap", [(0, 10, [(0, 0)]), (12, 20, [(0, 0)])], ["TIER_GAP 10"]),
    # Offsets 10 to 19 are there in epoch 0 only; the log has them in epoch 1.
    (
        "other epoch",
        [(0, 20, [(0, 0)]), (20, 30, [(0, 0), (1, 10)])],
        ["TIER_GAP 10"],
    ),
    (
        "all offsets replaced",
        [(0, 10, [(0, 0)]), (10, 20, [(0, 0), (1, 10)]), (12, 16, [(0, 0)])],
        ["UNREFERENCED_SEGMENT 12"],
    ),
    ("epochs before the start of the log", [(0, 10, [(0, 0)]), (10, 20, [(3, 10)])],
     ["UNREFERENCED_SEGMENT 0"]),
    ("no epochs known", [(0, 10, []), (10, 20, [])], []),
    ("no segments", [], []),
    ("nothing in them", [(0, 0, [(0, 0)]), (5, 5, [(0, 0)])], []),
    ("hostile epochs", [(0, 10, [(-(2**63), 2**63 - 1), (2**63 - 1, -(2**63))])], []),
    ("epochs that descend", [(0, 10, [(0, 0), (1, -5), (2, 5)])], []),
]  # fmt: skip


@pytest.mark.parametrize(("uploads", "expected"), [one[1:] for one in LINEAGES],
                         ids=[one[0] for one in LINEAGES])  # fmt: skip
def test_lineage(
    uploads: list[tuple[int, int, list[tuple[int, int]]]], expected: list[str]
) -> None:
    found = FoundInLog()
    ranges = [UploadRange(f"{start}.log", start, end, epochs) for start, end, epochs in uploads]
    check_lineage(ranges, found)
    assert [f"{symbol} {one.offset}" for (_, symbol), one in found.tallies.items()] == expected


def test_an_offset_that_is_no_int64(stored: Stored) -> None:
    for suffix in ("log", "indexes", "rsm-manifest"):
        path = stored.path(1, suffix)
        path.rename(path.with_name("9" * 30 + path.name[20:]))
    found = stored.audit()
    assert found.to_arrow().num_rows == len(found)
    assert found.alarms


def test_a_damaged_batch_is_no_contradiction_of_the_manifest(stored: Stored) -> None:
    path = stored.path(1, "log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert {one.symbol for one in stored.audit().alarms} == {"CHECKSUM_MISMATCH"}


def test_a_segment_without_its_key_is_an_error(stored: Stored, tmp_path: Path) -> None:
    log = sorted(LOG.glob("*.log"))[1]
    cipher = new_cipher(tmp_path / "private.pem")
    AivenTier(stored.root, "encrypted/", cipher=cipher).put_segment(log, 48, 1)
    (found,) = stored.audit().alarms
    assert (found.symbol, found.topic) == ("MISSING_KEY", "small-segments")


def test_every_kind_is_tested() -> None:
    tested = {symbol for _, symbol in DAMAGE.values()} | OF_CLUSTER
    assert set(TIER_KINDS) <= tested | {"MISSING_KEY", "UNREFERENCED_SEGMENT"}
