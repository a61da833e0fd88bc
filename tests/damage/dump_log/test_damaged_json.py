"""The JSON of damaged files has the facts of the lines: all up to the damage, then the error."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.json_dump import dump_as_json
from kafkascan.format.errors import KafkaScanError
from tests.support.dump_decoders import options_for
from tests.support.dumped_json import lines_of
from tests.support.segments import T0, batch_v2, message_v0, message_v1, sign

_GOLDEN = Path(__file__).parents[2] / "golden"
_COPIES = 40
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return a copy with some other bytes, more often in the first ones, and maybe another end."""
    copy = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.choice([dice.randrange(len(copy)), dice.randrange(min(len(copy), 90))])
        copy[at] = dice.choice([dice.randrange(256), copy[at] ^ 1 << dice.randrange(8)])
    if dice.random() < 0.2:
        del copy[dice.randrange(len(copy)) :]
    return bytes(copy)


def printed(partition: str, dice: random.Random) -> DumpOptions:
    """Return options: mostly with decoded records, and without records at times."""
    kind = dice.randrange(6)
    if kind == 0:
        return DumpOptions()
    if kind == 1:
        return DumpOptions(is_deep=True, prints_data=True)
    return options_for(partition)


def as_text(file: Path, options: DumpOptions) -> tuple[str, str]:
    """Return the lines, and the error at the end."""
    out, error = io.BytesIO(), ""
    try:
        dump_files([str(file)], options, out.write, str)
    except (KafkaScanError, OSError, ValueError) as raised:
        error = str(raised)
    return out.getvalue().decode("utf-8"), error


def as_objects(file: Path, options: DumpOptions) -> tuple[list[dict], str]:
    out, error = io.BytesIO(), ""
    try:
        dump_as_json([str(file)], options, out.write)
    except (KafkaScanError, OSError, ValueError) as raised:
        error = str(raised)
    return [json.loads(line) for line in out.getvalue().splitlines()], error


@pytest.mark.parametrize("suffix", _SUFFIXES)
def test_same_facts_up_to_the_damage(suffix: str, tmp_path: Path) -> None:
    dice = random.Random(suffix)
    files = [one for one in sorted(_GOLDEN.glob(f"*/data/*/*{suffix}")) if one.stat().st_size]
    ends: Counter[str] = Counter()
    for number, file in enumerate(dice.choices(files, k=_COPIES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for sibling in file.parent.glob(f"{file.stem}.*"):
            shutil.copy(sibling, folder)
        copy = folder / file.name
        copy.write_bytes(damaged(file.read_bytes(), dice))
        options = printed(file.parent.name, dice)
        text, error = as_text(copy, options)
        objects, json_error = as_objects(copy, options)
        assert ("".join(f"{line}\n" for line in lines_of(objects)), json_error) == (text, error)
        ends["error" if error else "finding" if objects[-1]["kind"] == "finding" else "clean"] += 1
    assert ends["clean"] < _COPIES - 2, ends


_RECORD = bytes([18, 0, 0, 0, 2, 107, 4, 118, 118, 0])  # key k, value vv
_BAD = bytes([18, 0, 0, 0, 2, 107, 40, 118, 118, 0])  # a value that is longer than its record


@pytest.mark.parametrize("magic", [2, 7])
@pytest.mark.parametrize("count", [3, 2**31 - 1, -1])
@pytest.mark.parametrize("end", [_BAD, b"", _RECORD + b"left"])
def test_records_in_front_of_damage_in_their_batch(
    magic: int, count: int, end: bytes, tmp_path: Path
) -> None:
    """Also of a batch of another magic, which is read as one of magic 2."""
    log = tmp_path / f"{0:020}.log"
    damage = batch_v2(_RECORD + _RECORD + end, records_count=count, magic=magic)
    log.write_bytes(batch_v2(_RECORD) + damage)
    options = DumpOptions(is_deep=True, prints_data=True)
    objects, error = as_objects(log, options)
    text, text_error = as_text(log, options)
    assert "".join(f"{line}\n" for line in lines_of(objects)) == text
    assert error == text_error
    assert str(log) in error
    assert f"position {len(batch_v2(_RECORD))}" in error
    read = 0 if count < 0 else 3 if end == _RECORD + b"left" and count > 3 else 2
    assert [one["kind"] for one in objects].count("record") == 1 + read


def test_a_batch_without_records_before_a_damaged_one(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    empty = batch_v2(b"", records_count=0)
    log.write_bytes(empty + batch_v2(b"no gzip", attributes=1, base_offset=1))
    options = DumpOptions(is_deep=True)
    objects, error = as_objects(log, options)
    assert [one["kind"] for one in objects] == ["file", "batch", "batch"]
    assert f"position {len(empty)} (base_offset 1)" in error
    text, text_error = as_text(log, options)
    assert ("".join(f"{line}\n" for line in lines_of(objects)), error) == (text, text_error)


def test_a_control_record_that_cannot_be_decoded_has_a_place(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(batch_v2(_RECORD) + batch_v2(_RECORD, attributes=0x20, base_offset=1))
    options = DumpOptions(is_deep=True)
    objects, error = as_objects(log, options)
    text, text_error = as_text(log, options)
    assert "".join(f"{line}\n" for line in lines_of(objects)) == text
    assert error == text_error
    assert f"{log}: position {len(batch_v2(_RECORD))}" in error
    assert "the record at offset 1: the key of a control record has fewer than 4 bytes" in error


def test_a_batch_that_is_smaller_than_its_header(tmp_path: Path) -> None:
    """Kafka prints its line, with fields of what follows, and cannot read records."""
    log = tmp_path / f"{0:020}.log"
    small = bytearray(batch_v2(_RECORD, magic=33))
    small[8:12] = (30).to_bytes(4, "big")
    log.write_bytes(batch_v2(_RECORD) + bytes(small) + batch_v2(_RECORD))
    text, error = as_text(log, DumpOptions(is_deep=True))
    objects, json_error = as_objects(log, DumpOptions(is_deep=True))
    assert " size: 42 magic: 33 " in text.splitlines()[-1]
    assert "".join(f"{line}\n" for line in lines_of(objects)) == text
    assert json_error == error
    assert f"{log}: position {len(batch_v2(_RECORD))}" in error


def wrapper_of(*messages: bytes, offset: int = 9) -> bytes:
    """Return a compressed message of magic 1."""
    return message_v1(None, gzip.compress(b"".join(messages)), offset=offset, attributes=1)


def claiming(size: int, offset: int) -> bytes:
    """Return a message of magic 1 whose value claims a size."""
    message = bytearray(message_v1(b"k", b"value", offset=offset))
    message[-6] = size
    sign(message)
    return bytes(message)


@pytest.mark.parametrize(
    "messages",
    [
        (claiming(77, 0), wrapper_of(claiming(77, 0), offset=0)),
        (claiming(77, 0), claiming(77, 100)),
        (),
        (claiming(77, 0)[:-2],),
    ],
    ids=["a compressed one within", "a higher offset than the wrapper", "none", "no whole one"],
)
def test_compressed_messages_that_cannot_be_read_at_all(
    messages: tuple[bytes, ...], tmp_path: Path
) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(wrapper_of(*messages))
    text, error = as_text(log, DumpOptions(is_deep=True))
    objects, json_error = as_objects(log, DumpOptions(is_deep=True))
    assert f"{log}: position 0 (base_offset 9)" in error
    assert json_error == error
    assert "".join(f"{line}\n" for line in lines_of(objects)) == text
    assert "| offset" not in text


def test_negative_sizes_of_old_messages(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    message = bytearray(message_v1(None, None, timestamp=T0))
    message[26:30] = (-513).to_bytes(4, "big", signed=True)
    log.write_bytes(message)
    text, _ = as_text(log, DumpOptions(is_deep=True))
    assert " keySize: -513 valueSize: -1 " in text
    assert as_objects(log, DumpOptions(is_deep=True))[0][2]["keySize"] == -513


def test_a_time_index_needs_no_header_of_other_batches(tmp_path: Path) -> None:
    """Of batches that an entry does not lead to, the tool reads offsets and sizes only."""
    log = tmp_path / f"{0:020}.log"
    good = message_v1(b"k", b"v", offset=1, timestamp=T0)
    bad = bytearray(message_v1(b"k", b"v", timestamp=T0))
    bad[16] = 0x81
    log.write_bytes(bytes(bad) + good + bad)
    log.with_suffix(".index").touch()
    index = log.with_suffix(".timeindex")
    index.write_bytes(T0.to_bytes(8, "big") + (1).to_bytes(4, "big"))
    text, error = as_text(index, DumpOptions())
    assert (text.splitlines()[1:], error) == ([f"timestamp: {T0} offset: 1"], "")


def test_a_batch_of_a_negative_magic_ends_the_dump(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    good, bad = message_v1(b"k", b"v", timestamp=T0), bytearray(message_v1(b"k", b"v", offset=1))
    bad[16] = 0x81
    log.write_bytes(good + bad)
    _, error = as_text(log, DumpOptions())
    reason = f" or batch_length {len(bad) - 12} cannot be read [BAD_HEADER]"
    assert error.endswith(reason), error


def test_a_time_index_is_compared_from_the_position_in_the_offset_index_on(tmp_path: Path) -> None:
    """Batches before it are not searched, even if they claim the offset."""
    log = tmp_path / f"{0:020}.log"
    wrong = message_v1(b"k", b"v", offset=9, timestamp=T0)
    good = message_v1(b"k", b"v", offset=1, timestamp=T0)
    log.write_bytes(wrong + good)
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 1, len(wrong)))
    index = log.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">qi", T0, 1))
    objects, error = as_objects(index, DumpOptions())
    assert error == ""
    assert objects[1:] == [{"kind": "index entry", "timestamp": T0, "offset": 1}]


def test_an_entry_of_offset_minus_1_in_front_of_no_batch(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    for file in (log, log.with_suffix(".index")):
        file.touch()
    index = log.with_suffix(".timeindex")
    index.write_bytes(T0.to_bytes(8, "big") + b"\xff\xff\xff\xff")
    objects, error = as_objects(index, DumpOptions())
    assert error == ""
    assert (objects[-1]["what"], objects[-1]["foundOffset"]) == ("indexed offset not found", -1)


@pytest.mark.parametrize("prints_data", [True, False])
@pytest.mark.parametrize("write", [message_v0, message_v1])
def test_a_message_that_claims_a_larger_value_than_it_has_ends_the_dump(
    write: Callable[..., bytes], prints_data: bool, tmp_path: Path
) -> None:
    log = tmp_path / f"{0:020}.log"
    good, bad = write(b"k", b"value"), bytearray(write(b"k", b"value", offset=1))
    bad[-6] = 12
    sign(bad)
    log.write_bytes(good + bytes(bad) + good)
    options = DumpOptions(is_deep=True, prints_data=prints_data)
    objects, error = as_objects(log, options)
    text, text_error = as_text(log, options)
    assert error == text_error
    assert f"position {len(good)} (base_offset 1)" in error
    assert "".join(f"{line}\n" for line in lines_of(objects)) == text
    assert text.count("\n| offset") == 1
