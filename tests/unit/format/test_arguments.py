"""Arguments of a wrong type: the error names the argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

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
    "sample": lambda odd: ks.read_producers(LOG, sample=odd),
    "base_offset": lambda odd: ks.build_offset_index(BATCHES, base_offset=odd),
    "interval_bytes": lambda odd: ks.build_offset_index(BATCHES, base_offset=0, interval_bytes=odd),
    "start": lambda odd: ks.scan_batches(LOG, start=odd),
    "offset_shift": lambda odd: ks.restamp_log("x", "y", offset_shift=odd),
}


@pytest.mark.parametrize("odd", ["1", 1.5, None, [1], float("nan")], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_not_an_integer(name: str, odd: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an integer, not {type(odd).__name__}"):
        CALLS[name](odd)


STRINGS: dict[str, Callable[[Any], object]] = {
    "columns": lambda odd: list(ks.scan_log_dir(".", columns=odd)),
    "choices": lambda odd: ks.advise(LOG, choices=odd),
    "tiered_topics": lambda odd: ks.recover("x", tiered_topics=odd),
}


@pytest.mark.parametrize("odd", [5, "x", b"x", [5], (1,)], ids=repr)
@pytest.mark.parametrize("name", STRINGS)
def test_what_is_not_a_collection_of_strings(name: str, odd: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a collection of str, not"):
        STRINGS[name](odd)


@pytest.mark.parametrize("headers", [["x"], [5], [[5]], [[("k", "v", "w")]], 5, "x"], ids=repr)
def test_what_are_not_headers(headers: object) -> None:
    with pytest.raises(TypeError, match="headers"):
        ks.build_batches(value=[b"a"], headers=headers)


@pytest.mark.parametrize("value", [-1, 1 << 32, 1 << 80])
def test_what_is_not_a_checksum(value: int) -> None:
    with pytest.raises(ValueError, match=f"value {value} is not the CRC-32C"):
        ks.crc32c(b"", value)


def test_numbers_of_more_than_64_bits() -> None:
    with pytest.raises(ValueError, match="earliest_ms 1208925819614629174706176 needs more than"):
        ks.check_batches(BATCHES, earliest_ms=1 << 80)
    with pytest.raises(TypeError, match="title must be str, not int"):
        ks.build_report(LOG, title=cast("str", 5))


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


NUMBERS: dict[str, Callable[[Any], object]] = {
    "log_start_offset": lambda odd: ks.read_records(LOG, log_start_offset=odd),
    "timestamp_before_max_ms": lambda odd: ks.write.validate_batches(
        LOG, timestamp_before_max_ms=odd
    ),
    "timestamp_after_max_ms": lambda odd: ks.write.validate_batches(
        LOG, timestamp_after_max_ms=odd
    ),
    "max_message_bytes": lambda odd: ks.write.validate_batches(LOG, max_message_bytes=odd),
    "max_message_bytes ": lambda odd: ks.check_batches(BATCHES, max_message_bytes=odd),
    "many_producers": lambda odd: ks.audit(".", many_producers=odd),
    "sample": lambda odd: ks.read_producers(LOG, sample=odd),
    "expiration_ms": lambda odd: ks.read_producers(LOG, expiration_ms=odd),
    "log_start_offset ": lambda odd: list(ks.iter_records(LOG, log_start_offset=odd)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_would_be_ignored(name: str) -> None:
    for odd in (-1, 1 << 80):
        with pytest.raises(ValueError, match=f"{name.strip()} (must not be negative|.* 64 bits)"):
            NUMBERS[name](odd)
    for other in (1.5, float("nan"), "x"):
        with pytest.raises(TypeError, match=f"{name.strip()} must be an integer"):
            NUMBERS[name](other)


@pytest.mark.parametrize("odd", [1.5, float("nan"), "x"])
def test_offsets_of_a_selection(odd: Any) -> None:
    with pytest.raises(TypeError, match="leader_epoch must be an integer"):
        ks.write.validate_batches(LOG, leader_epoch=odd)
    with pytest.raises(TypeError, match="start must be an integer"):
        ks.batches.select_offsets(BATCHES, odd)
    with pytest.raises(TypeError, match="stop must be an integer"):
        ks.batches.select_offsets(BATCHES, None, odd)


@pytest.mark.parametrize("odd", [-1, 3, 1.5, "x"])
def test_a_format_that_no_topic_has(odd: Any) -> None:
    with pytest.raises(ValueError, match="to_magic must be 0, 1 or 2"):
        ks.write.validate_batches(LOG, to_magic=odd)


@pytest.mark.parametrize("odd", [5, "x", [5], None])
def test_contents_of_files_that_have_another_type(tmp_path: Path, odd: Any) -> None:
    state, path = ks.broker_state, tmp_path / "file"
    for name, write in (
        ("epochs", lambda: state.write_leader_epochs(path, odd if odd == "x" else [odd])),
        ("properties", lambda: state.write_meta_properties(path, odd)),
        ("properties", lambda: state.write_meta_properties(path, {5: "x"})),  # type: ignore[dict-item]
        ("values", lambda: state.write_meta_properties(path, {"a": 5})),  # type: ignore[dict-item]
        ("metadata", lambda: state.write_partition_metadata(path, odd)),
        ("shutdown", lambda: state.write_clean_shutdown(path, odd)),
        ("prior", lambda: state.build_leader_epochs(BATCHES, prior=[odd])),
        ("states", lambda: ks.analysis.find_contradictions(odd, odd)),
    ):
        with pytest.raises(TypeError, match=f"{name} must"):
            write()
    assert not path.exists()
