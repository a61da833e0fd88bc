"""The "Raises" sections of public functions name the errors of inputs that cannot be read."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from tests.support.command_line import DATA

LOG = DATA / "transactions-0" / "00000000000000000005.log"
ROWS = ks.scan_batches(LOG).batches
# The package's docstring names these for all functions.
OF_ALL_FUNCTIONS = (TypeError, ValueError)


def keep_all(records: ks.RecordTable) -> Any:
    return np.ones(len(records), np.bool_)


OF_SOURCES: dict[str, Callable[[Any], object]] = {
    "scan_batches": ks.scan_batches,
    "iter_batches": lambda source: list(ks.iter_batches(source)),
    "verify_crcs": lambda source: ks.verify_crcs(source, ROWS),
    "read_records": lambda source: ks.read_records(source, verify=True),
    "iter_records": lambda source: list(ks.iter_records(source, verify=True)),
    "lookup_offset": lambda source: ks.lookup_offset(source, 3),
    "lookup_timestamp": lambda source: ks.lookup_timestamp(source, 0),
    "convert_records": lambda source: ks.convert_records(source, compression_type="zstd"),
    "filter_records": lambda source: ks.filter_records(source, keep=keep_all),
    "restamp": lambda source: ks.restamp(source, partition_leader_epoch=3),
    "validate_batches": ks.validate_batches,
    "count_records": ks.count_records,
    "read_transactions": ks.read_transactions,
    "read_producers": ks.read_producers,
    "advise": ks.advise,
    "audit": ks.audit,
    "build_report": ks.build_report,
    "diff_logs": lambda source: ks.diff_logs(source, LOG),
}
OF_PATHS: dict[str, Callable[[Any, Path], object]] = {
    "open_segment": lambda path, _: ks.open_segment(path),
    "open_log_dir": lambda path, _: ks.open_log_dir(path),
    "scan_log_dir": lambda path, _: list(ks.scan_log_dir(path)),
    "read_index": lambda path, _: ks.read_index(path),
    "recover": lambda path, _: ks.recover(path),
    "salvage": lambda path, new: ks.salvage(path, new),
    "convert_log": lambda path, new: ks.convert_log(path, new, to_magic=2),
    "restamp_log": lambda path, new: ks.restamp_log(path, new, partition_leader_epoch=3),
    "scrub_log": lambda path, new: ks.scrub_log(path, new, keep=keep_all),
    "read_groups": lambda path, _: ks.read_groups(path),
    "read_metadata": lambda path, _: ks.read_metadata(path),
    "read_transaction_state": lambda path, _: ks.read_transaction_state(path),
    "read_share_state": lambda path, _: ks.read_share_state(path),
}


def errors() -> dict[str, type[BaseException]]:
    """Return exceptions by their names."""
    known = dict(vars(builtins))
    for package in (ks, ks.format, ks.io, ks.analysis, ks.tables):
        known |= {name: getattr(package, name) for name in package.__all__}
    return {
        name: one
        for name, one in known.items()
        if isinstance(one, type) and issubclass(one, BaseException)
    }


def documented(name: str) -> set[str]:
    """Return the errors that a docstring names, also those of functions that it refers to."""
    places = (ks, ks.analysis, ks.rewrite)
    function = next(getattr(one, name) for one in places if name in one.__all__)
    section = (inspect.getdoc(function) or "").partition("Raises\n------\n")[2].partition("\n\n")[0]
    found = set(re.findall(r"\w+", section)) & errors().keys()
    for reference in re.findall(r"[Aa]s (`\w+`)", section):
        found |= documented(reference.strip("`"))
    return found


def require_documented(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except OF_ALL_FUNCTIONS as error:
        if type(error) in OF_ALL_FUNCTIONS:
            return
        raised: Exception = error
    except Exception as error:
        raised = error
    else:
        return
    kinds = tuple(errors()[one] for one in documented(name))
    assert isinstance(raised, kinds), repr(raised)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    """Inputs that are missing, of another kind, or damaged."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello world\n" * 30)
    garbage = tmp_path / "garbage-0" / f"{0:020}.log"
    garbage.parent.mkdir()
    garbage.write_bytes(b"\xff" * 300)
    closed = ks.Source(LOG)
    closed.close()
    changed = {"checksum": (200, 1), "magic": (16, 11), "codec": (22, 6), "record": (61, 3)}
    damaged = {name: bytearray(LOG.read_bytes()) for name in changed}
    for name, (at, bits) in changed.items():
        damaged[name][at] ^= bits
    return {
        "missing": tmp_path / "none.log",
        "data dir": DATA,
        "empty": tmp_path / "empty",
        "text": tmp_path / "notes.txt",
        "garbage": garbage,
        "its folder": garbage.parent,
        "number": 5,
        "closed": closed,
        **damaged,
    }


@pytest.mark.parametrize("name", OF_SOURCES)
def test_errors_of_functions_of_sources(name: str, inputs: dict[str, Any]) -> None:
    for source in inputs.values():
        require_documented(name, lambda source=source: OF_SOURCES[name](source))  # type: ignore[misc]


@pytest.mark.parametrize("name", OF_PATHS)
def test_errors_of_functions_of_paths(name: str, inputs: dict[str, Any], tmp_path: Path) -> None:
    for number, path in enumerate(inputs.values()):
        new = tmp_path / f"new-{number}"
        require_documented(name, lambda path=path, new=new: OF_PATHS[name](path, new))  # type: ignore[misc]
