"""Arguments of a wrong type: the error names the argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks

LOG = ks.build_batches(value=[b"a", b"b"])
BATCHES = ks.scan_batches(LOG).batches

CALLS: dict[str, Callable[[Any], object]] = {
    "max_decompressed_size": lambda odd: ks.read_records(LOG, max_decompressed_size=odd),
    "batch_size": lambda odd: list(ks.iter_records(LOG, batch_size=odd)),
    "rows": lambda odd: list(ks.iter_batches(LOG, rows=odd)),
    "future_ms": lambda odd: ks.check_batches(BATCHES, future_ms=odd),
    "earliest_ms": lambda odd: ks.audit(LOG, earliest_ms=odd),
    "offset": lambda odd: ks.lookup_offset(LOG, odd),
    "sample": lambda odd: ks.advise(LOG, sample=odd),
    "base_offset": lambda odd: ks.build_offset_index(BATCHES, base_offset=odd),
    "interval_bytes": lambda odd: ks.build_offset_index(BATCHES, base_offset=0, interval_bytes=odd),
    "offset_shift": lambda odd: ks.restamp_log("x", "y", offset_shift=odd),
}


@pytest.mark.parametrize("odd", ["1", 1.5, None, [1], float("nan")], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_not_an_integer(name: str, odd: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an integer, not {type(odd).__name__}"):
        CALLS[name](odd)


def test_other_arguments(tmp_path: Path) -> None:
    log_dir = tmp_path / "t-0"
    log_dir.mkdir()
    (log_dir / f"{0:020}.log").write_bytes(LOG)
    with pytest.raises(ValueError, match="log_start_offset 9223372036854775808 needs more than 64"):
        ks.count_records(log_dir, log_start_offset=1 << 63)
    with pytest.raises(TypeError, match="log_start_offset must be an integer, not str"):
        ks.count_records(log_dir, log_start_offset="x")
    with pytest.raises(TypeError, match="offsets must be a mapping, not list"):
        ks.broker_state.write_offset_checkpoint(tmp_path / "file", [])
    assert not (tmp_path / "file").exists()
