"""The parser of DumpLogSegments' output, on lines that no golden file contains."""

from __future__ import annotations

import pytest

from tests.support.kafka_dump import DumpFormatError, parse_index, parse_log

_HEAD = "Dumping t-0/00000000000000000000.log\nLog starting offset: 0\n"
_BATCH = (
    "offset: 0 position: 0 NoTimestampType: -1 size: 28 magic: 0 "
    "compresscodec: none crc: 535615242 isvalid: false\n"
)
_RECORD = "| offset: 0 NoTimestampType: -1 keySize: 1 valueSize: 1 isValid: true crc: 7"


def test_a_payload_may_contain_line_breaks_and_field_names() -> None:
    payload = "one\n\ntwo | offset: 3 key: x\r\u2028"
    dump = parse_log(f"{_HEAD}{_BATCH}{_RECORD} key: k payload: {payload}\n{_BATCH}")
    assert len(dump.batches) == 2
    (record,) = dump.batches[0].records
    assert (record.key, record.payload) == ("k", payload)


def test_the_brace_of_older_tools_is_accepted() -> None:
    dump = parse_log(f"{_HEAD}{_BATCH}{_RECORD}}} payload: v\n")
    (record,) = dump.batches[0].records
    assert (record.crc, record.key, record.payload) == (7, None, "v")


def test_invalid_bytes_and_checksums_are_reported() -> None:
    dump = parse_log(
        f"{_HEAD}{_BATCH}Found 9 invalid bytes at the end of 00000000000000000000.log\n"
    )
    assert dump.invalid_bytes == 9
    assert not dump.batches[0].is_valid


def test_an_empty_log_has_no_batches() -> None:
    assert parse_log(_HEAD).batches == []


def test_an_empty_index_has_no_entries() -> None:
    assert parse_index("Dumping t-0/0.index\nt-0/0.index is empty.\n") == []


@pytest.mark.parametrize(
    "text",
    ["", "Dumping x\n", f"{_HEAD}nonsense\n", f"{_HEAD}{_BATCH}{_BATCH}nonsense\n", _BATCH],
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(DumpFormatError):
        parse_log(text)
