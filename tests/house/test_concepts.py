"""docs/concepts.md: what is verified by default, and which versions are supported."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from tests.house.readme import ROOT
from tests.support.command_line import DATA

_NAMES = re.compile(r"`(?:polars\.)?(\w+)`")


def keep_all(records: ks.RecordTable) -> Any:
    return np.ones(len(records), np.bool_)


def says_nothing(_: object) -> bool:
    """Return False: the function raises an error, or notices nothing."""
    return False


def write_again(log: Path, folder: Path) -> None:
    with ks.SegmentWriter(folder) as writer:
        writer.append(log.read_bytes())


CALLS: dict[str, Callable[[Path, Path], object]] = {
    "scan_batches": lambda log, _: says_nothing(ks.scan_batches(log)),
    "iter_batches": lambda log, _: list(ks.iter_batches(log))[:0],
    "scan_log_dir": lambda log, _: ks.scan_log_dir(log.parent).problems,
    "check_batches": lambda log, _: ks.check_batches(ks.scan_batches(log).batches),
    "count_records": lambda log, _: ks.count_records(log.parent, deep=True).problems,
    "read_transactions": lambda log, _: ks.read_transactions(log.parent).problems,
    "read_producers": lambda log, _: ks.read_producers(log.parent).problems,
    "diff_logs": lambda log, _: ks.diff_logs(log.parent, log.parent).problems,
    "advise": lambda log, _: ks.advise(log.parent).problems,
    "lookup_offset": lambda log, _: ks.lookup_offset(log, 3) is None,
    "lookup_timestamp": lambda log, _: ks.lookup_timestamp(log, 0) is None,
    "read_records": lambda log, _: ks.read_records(log.parent).problems,
    "iter_records": lambda log, _: [one for t in ks.iter_records(log.parent) for one in t.problems],
    "scan_records": lambda log, _: says_nothing(ks.polars.scan_records(log).collect()),
    "verify_crcs": lambda log, _: not ks.verify_crcs(log, ks.scan_batches(log).batches).all(),
    "audit": lambda log, _: [
        one for one in ks.audit(log).findings if one.symbol == "CHECKSUM_MISMATCH"
    ],
    "build_report": lambda log, _: "CHECKSUM_MISMATCH" in ks.build_report(log).html,
    "recover": lambda log, _: ks.recover(log.parent).partitions[0].truncated_bytes,
    "salvage": lambda log, new: ks.salvage(log.parent, new / "salvaged-0").problems,
    "convert_records": lambda log, _: says_nothing(
        ks.convert_records(log, compression_type="zstd")
    ),
    "filter_records": lambda log, _: says_nothing(ks.filter_records(log, keep=keep_all)),
    "convert_log": lambda log, new: says_nothing(ks.convert_log(log, new / "1.log", to_magic=2)),
    "restamp_log": lambda log, new: says_nothing(
        ks.restamp_log(log, new / "2.log", offset_shift=1)
    ),
    "scrub_log": lambda log, new: says_nothing(ks.scrub_log(log, new / "3.log", keep=keep_all)),
    "restamp": lambda log, _: says_nothing(ks.restamp(log, partition_leader_epoch=7)),
    "SegmentWriter": lambda log, new: write_again(log, new / "written-0"),
    "validate_batches": lambda log, _: ks.validate_batches(log.read_bytes()),
}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A segment with a changed letter in a value, which can still be decoded."""
    folder = shutil.copytree(DATA / "headers-0", tmp_path / "data" / "headers-0")
    (log,) = folder.glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"value 1")] ^= 1
    log.write_bytes(data)
    assert b"walue 1" in ks.read_records(log)["value"]
    return log


def functions() -> Iterator[tuple[str, str]]:
    """Yield the functions of the page's table, with what they verify by default."""
    page = (ROOT / "docs" / "concepts.md").read_text()
    table = page.partition("| functions | verified by default |")[2].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, names, verified, *_ = row.split("|")
        yield from ((name, verified) for name in _NAMES.findall(names) if hasattr(ks, name)
                    or name == "scan_records")  # fmt: skip


def test_the_table_has_all_functions_that_may_verify() -> None:
    assert {name for name, _ in functions()} >= CALLS.keys()


@pytest.mark.parametrize(
    ("name", "verified"), [pair for pair in functions() if pair[0] in CALLS], ids=str
)
def test_what_is_verified_by_default(
    name: str, verified: str, damaged: Path, tmp_path: Path
) -> None:
    try:
        notices = bool(CALLS[name](damaged, tmp_path))
    except ks.ChecksumMismatchError:
        notices = True
    assert notices == ("nothing" not in verified)


def test_supported_versions_are_those_of_the_package() -> None:
    page = " ".join((ROOT / "docs" / "concepts.md").read_text().split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3" in one]
    assert f"Python {pythons[0]} to {pythons[-1]}" in page
    assert project["requires-python"] == f">={pythons[0]}"
    extras = project["optional-dependencies"]
    required = [one for extra in ("pandas", "polars", "sql") for one in extras[extra]]
    for requirement in [*project["dependencies"][:1], *required]:
        name, _, oldest = requirement.partition(">=")
        assert f"{name} {oldest}" in page.lower()
    assert extras["spark"][0] == "pyspark>=4.0,<4.4"
    assert "PySpark 4.0 to 4.3" in page
