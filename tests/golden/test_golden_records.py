"""Every record of the golden segments equals that of Kafka's readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support import compare_records

_GOLDEN = Path(__file__).parent
_LOGS = sorted(
    path for path in _GOLDEN.glob("*/data/*/*") if path.suffix in {".log", ".checkpoint"}
)
_HEADERS = _GOLDEN / "kafka-4.4.0/data/headers-0/00000000000000000000.log"


def _kafka_output(log: Path) -> str:
    """Return the output of RecordFields. A missing file fails the test, not skips it."""
    run = log.parents[2]
    return compare_records.read_lines(run / "records" / log.parent.name / f"{log.name}.jsonl.gz")


@pytest.mark.parametrize(
    "directory",
    [
        pytest.param(directory, id=directory.relative_to(_GOLDEN).as_posix().replace("/data/", "-"))
        for directory in sorted({log.parent for log in _LOGS})
    ],
)
def test_every_field_of_every_record(directory: Path) -> None:
    for log in _LOGS:
        if log.parent == directory:
            compare_records.compare_records(log, _kafka_output(log))


def test_the_records_cover_the_format() -> None:
    """The records have every format, codec and kind of field."""
    readings = [compare_records.parse_records(_kafka_output(log)) for log in _LOGS]
    records = [record for reading in readings for record in reading.records]
    assert len(records) >= 5000
    batches = {
        (log, int(row["position"])): row for log in _LOGS for row in ks.scan_batches(log).batches
    }
    formats: dict[tuple[int, int], int] = {}
    for log, reading in zip(_LOGS, readings, strict=True):
        for record in reading.records:
            row = batches[log, record.position]
            kind = int(row["magic"]), int(row["attributes"]) & 7
            formats[kind] = formats.get(kind, 0) + 1
    expected = {(2, codec) for codec in range(5)}
    expected |= {(magic, codec) for magic in (0, 1) for codec in range(4)}
    assert formats.keys() == expected
    assert min(formats.values()) >= 20
    assert {record.timestamp_type for record in records} == {-1, 0, 1}
    assert {type(record.key) for record in records} == {bytes, type(None)}
    assert {type(record.value) for record in records} == {bytes, type(None)}
    assert any(record.sequence > 0 for record in records)
    assert max(len(record.headers) for record in records) >= 100
    values = [value for record in records for _, value in record.headers]
    assert None in values
    assert b"" in values


@pytest.mark.parametrize("name", compare_records.RecordFields._fields)
def test_one_wrong_value_is_detected(name: str) -> None:
    *lines, end = _kafka_output(_HEADERS).splitlines()
    json_name = {"timestamp_type": "timestampType"}.get(name, name)
    wrong = {"timestamp_type": "LogAppendTime", "key": "AA==", "value": None, "headers": [["", ""]]}
    last = json.loads(lines[-1])
    assert last[json_name] != wrong.get(name, -77)
    lines[-1] = json.dumps(last | {json_name: wrong.get(name, -77)})
    with pytest.raises(AssertionError, match=rf"1 differences of read_records\n.*: {name} is"):
        compare_records.compare_records(_HEADERS, "\n".join([*lines, end]))


def test_a_missing_record_and_a_refusal_are_detected() -> None:
    *lines, end = _kafka_output(_HEADERS).splitlines()
    with pytest.raises(AssertionError, match=f"{len(lines) - 1} records in Kafka"):
        compare_records.compare_records(_HEADERS, "\n".join([*lines[:-1], end]))
    refusal = json.dumps({"position": 0, "exception": "E", "message": "m"})
    with pytest.raises(AssertionError, match="Kafka itself refuses"):
        compare_records.compare_records(_HEADERS, "\n".join([refusal, *lines, end]))


def test_comparing_nothing_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no record was compared"):
        compare_records.compare_all_records([])


@pytest.mark.parametrize("log", _LOGS, ids=lambda log: "-".join(log.parts[-4:]))
def test_files_that_are_not_mapped_have_the_same_records(log: Path) -> None:
    with ks.Source(log) as mapped, ks.Source(log, memory_map=False) as read:
        batches = ks.scan_batches(mapped, on_corrupt="stop").batches
        expected, found = (
            ks.read_records(source, batches, control="include") for source in (mapped, read)
        )
        for name in ("key", "value"):
            assert found.items(name) == expected.items(name)
        assert (found["offset"] == expected["offset"]).all()
        del expected, found
