"""Tiered storage on Spark: the rows of the logs that a broker had on disk."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import TieredStorageWarning, list_logs
from kafkascan.tiered import MissingKeyError
from tests.spark.logs import DATA, multiset, rows, s3_of
from tests.support.tiers import KEY_ID, AivenTier, new_cipher, put_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("transactions-0", "small-segments-0", "idempotent-0")
COLUMNS = "topic,partition,offset,key,value,timestamp"


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, Any]:
    """The rows of the same logs in a data directory."""
    for name in NAMES:
        shutil.copytree(DATA / name, tmp_path / "local" / name)
    path = str(tmp_path / "local")
    found = {"records": multiset(rows(path=path, columns=COLUMNS))}
    committed = rows(path=path, columns=COLUMNS, isolationLevel="read_committed")
    found["committed"] = multiset(committed)
    found["batches"] = multiset(
        rows(path=path, view="batches", columns="topic,position,crc_is_valid")
    )
    assert all(len(one) > 20 for one in found.values())
    return found


def make_tier(folder: Path, kind: str) -> dict[str, str]:
    """Store the logs; return the options that read them."""
    options = {"tieredLayout": "auto"}
    if kind == "local":
        for name in NAMES:
            put_local(folder, DATA / name)
        return options
    is_encrypted = kind == "both"
    cipher = new_cipher(folder.with_name("private.pem")) if is_encrypted else None
    stored = AivenTier(folder, "tier/", 2_000, kind != "plain", cipher)
    for name in NAMES:
        stored.put_partition(DATA / name)
    if is_encrypted:
        options["tieredKeys"] = json.dumps({KEY_ID: str(folder.with_name("private.pem"))})
    return options


def require_rows(expected: dict[str, Any], **given: Any) -> None:
    assert multiset(rows(**given, columns=COLUMNS)) == expected["records"]
    committed = rows(**given, columns=COLUMNS, isolationLevel="read_committed")
    assert multiset(committed) == expected["committed"]
    batches = rows(**given, view="batches", columns="topic,position,crc_is_valid")
    assert multiset(batches) == expected["batches"]
    one_topic = rows(**given, columns=COLUMNS, topics="idempotent")
    assert 0 < len(one_topic) < expected["records"].total()


@pytest.mark.parametrize("kind", ["local", "plain", "compressed", "both"])
def test_a_tier_in_a_folder(tmp_path: Path, kind: str, expected: dict[str, Any]) -> None:
    options = make_tier(tmp_path / "tier", kind)
    require_rows(expected, path=str(tmp_path / "tier"), **options)
    # Tasks that begin inside of a segment.
    pieces = {"maxPartitionBytes": 1000}
    require_rows(expected, path=str(tmp_path / "tier"), **options, **pieces)


@pytest.mark.parametrize("kind", ["local", "both"])
def test_a_tier_in_a_bucket(
    tmp_path: Path, kind: str, expected: dict[str, Any], store: dict[str, Any]
) -> None:
    options = make_tier(tmp_path / "tier", kind)
    s3_of(store).put(str(tmp_path / "tier"), f"logs/tier-{kind}", recursive=True)
    options["storageOptions"] = json.dumps(store)
    require_rows(expected, path=f"s3://logs/tier-{kind}", **options)


def test_a_frame_over_a_tier(tmp_path: Path, expected: dict[str, Any], spark: SparkSession) -> None:
    options = make_tier(tmp_path / "tier", "both")
    frame = spark.read.format("kafkascan").options(**options, columns=COLUMNS)
    found = frame.load(str(tmp_path / "tier")).toArrow().to_pylist()
    # Spark has timestamps in its session's time zone.
    assert sorted((row["topic"], row["offset"], row["value"]) for row in found) == sorted(
        (row["topic"], row["offset"], row["value"])
        for row in rows(path=str(tmp_path / "local"), columns=COLUMNS)
    )


def test_problems_are_warnings(tmp_path: Path) -> None:
    options = make_tier(tmp_path / "tier", "plain")
    next((tmp_path / "tier").rglob("*.rsm-manifest")).unlink()
    with pytest.warns(TieredStorageWarning, match="NOT_UPLOADED"):
        list_logs(Options.parse({"path": str(tmp_path / "tier"), **options}))


def test_a_missing_key(tmp_path: Path) -> None:
    options = make_tier(tmp_path / "tier", "both") | {"tieredKeys": "{}"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TieredStorageWarning)
        with pytest.raises(FileNotFoundError, match="MISSING_KEY"):
            list_logs(Options.parse({"path": str(tmp_path / "tier"), **options}))


def test_a_key_that_only_the_driver_has(tmp_path: Path) -> None:
    options = make_tier(tmp_path / "tier", "both")
    parsed = Options.parse({"path": str(tmp_path / "tier"), **options})
    logs = list_logs(parsed)
    assert "PRIVATE" not in repr((logs, parsed))
    from kafkascan.spark.planning.planned_logs import open_file

    with pytest.raises(MissingKeyError):
        open_file(logs[0].segments[0], parsed.replace(tiered_keys="{}"))
