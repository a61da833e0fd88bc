"""`kafkascan records` and `batches`: topics, last records, patterns, isolation, relative times."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.cli import sorted_records
from kafkascan.cli.verbs import record_commands
from tests.support.command_line import DATA, GOLDEN, LEGACY, rows, run
from tests.support.internal_topics import TopicLog
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0


def test_topics() -> None:
    found = rows("records", DATA, "--topic", "headers", "--topic", "idempotent")
    assert {row["topic"] for row in found} == {"headers", "idempotent"}
    assert {row["topic"] for row in rows("batches", DATA, "--topic", "partitions")} == {
        "partitions"
    }
    assert {row["topic"] for row in rows("info", DATA, "--topic", "partitions")} == {"partitions"}
    done = run("records", DATA, "--topic", "nothing")
    assert done.returncode == 3
    assert "no partitions of nothing here" in done.stderr


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_tail(count: int) -> None:
    found = rows("records", DATA / "small-segments-0", "--tail", count)
    everything = rows("records", DATA / "small-segments-0")
    assert found == (everything[-count:] if count else [])
    assert run("records", DATA, "--tail", 1, "--limit", 1).returncode == 2


def test_grep_searches_keys_and_values() -> None:
    log = DATA / "transactions-0"
    keys = [row["key"] for row in rows("records", log, "--grep", "^key-[12]$")]
    assert len(keys) > 4
    assert set(keys) == {"key-1", "key-2"}
    (value, *_) = rows("records", log, "--limit", 1)
    found = rows("records", log, "--grep", value["value"], "--columns", "offset")
    assert {"offset"} == set(found[0])
    assert value["offset"] in [row["offset"] for row in found]
    assert run("records", log, "--grep", "(").returncode == 2


def test_bytes_are_searched_too(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    records = [RecordV2(value=b"\xff\x00a\nb"), RecordV2(value=None, key=b"x", offset_delta=1)]
    path.write_bytes(batch_of(records))
    assert [row["offset"] for row in rows("records", path, "--grep", r"\xff.a.b")] == [0]
    assert [row["offset"] for row in rows("records", path, "--grep", "x")] == [1]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_missing_segment_is_named_once(isolation: str, tmp_path: Path) -> None:
    log = tmp_path / "small-segments-0"
    shutil.copytree(DATA / "small-segments-0", log)
    sorted(log.glob("*.log"))[2].unlink()
    done = run("records", log, "--isolation", isolation, "--format", "jsonl")
    assert done.returncode == 1
    assert done.stderr.count("OFFSET_GAP") == 1


def test_damage_that_the_transactions_of_two_files_have_is_named_once(tmp_path: Path) -> None:
    log = tmp_path / "transactions-0"
    shutil.copytree(DATA / "transactions-0", log)
    first, last = sorted(log.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-3])
    done = run("records", first, last, "--isolation", "read_committed", "--format", "jsonl")
    assert done.returncode == 1
    assert done.stderr.count("TORN_TAIL") == 1


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_isolation(isolation: str) -> None:
    log = DATA / "transactions-0"
    expected = ks.read_records(log, columns=("offset",), isolation=isolation)["offset"].tolist()
    found = rows("records", log, "--isolation", isolation)
    assert [row["offset"] for row in found] == expected
    # Of one file, the transactions of its own bytes are known.
    file = log / f"{5:020}.log"
    found = rows("records", file, "--isolation", isolation)
    assert [row["offset"] for row in found] == [one for one in expected if one >= 5]


def test_relative_times(tmp_path: Path) -> None:
    path, now = tmp_path / f"{0:020}.log", time.time_ns() // 1_000_000
    ages = [3 * 86_400_000, 7_200_000, 1_800_000]
    records = [
        RecordV2(offset_delta=n, timestamp_delta=ages[0] - age) for n, age in enumerate(ages)
    ]
    first = now - ages[0]
    path.write_bytes(batch_of(records, base_timestamp=first, max_timestamp=now - ages[-1]))
    for since, offsets in (("-1h", [2]), ("-180m", [1, 2]), ("-4d", [0, 1, 2]), ("-9s", [])):
        found = rows("records", path, "--from-time", since)
        assert [row["offset"] for row in found] == offsets
    assert [row["offset"] for row in rows("records", path, "--to-time", "-2d")] == [0]
    assert run("records", path, "--from-time", "-1y").returncode == 2


def test_own_topics_are_decoded() -> None:
    (found,) = rows("records", DATA, "--topic", "__consumer_offsets", "--from-offset", 19)
    assert found["key"] == {
        "type": "OffsetCommitKey", "version": 0,
        "data": {"group": "oracle-java-transactional", "topic": "consumed", "partition": 0},
    }  # fmt: skip
    assert found["value"]["data"]["offset"] == 7
    (raw,) = rows(
        "records", DATA, "--topic", "__consumer_offsets", "--from-offset", 19, "--decode", "none"
    )
    assert raw["key"].startswith("\x00\x01\x00\x19oracle-java")
    (in_hex,) = rows(
        "records", DATA, "--topic", "__consumer_offsets", "--from-offset", 19, "--key-as", "hex"
    )
    assert in_hex["key"].startswith("00010019")
    assert in_hex["value"] == found["value"]
    (metadata, *_) = rows("records", DATA, "--topic", "__cluster_metadata", "--limit", 3)
    assert metadata["value"]["type"] == "BeginTransactionRecord"
    # Only the shown columns are replaced.
    (offset,) = rows(
        "records", DATA, "--topic", "__consumer_offsets", "--tail", 1, "--columns", "offset"
    )
    assert offset["offset"] == 19
    marker = rows("records", DATA, "--topic", "__consumer_offsets", "--control", "only")
    assert [row["key"] for row in marker] == ["COMMIT"]


def test_records_that_cannot_be_decoded_are_shown_as_bytes(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__consumer_offsets-0").add((b"\0\x63a", b"v"), (None, None))
    found = rows("records", log.write())
    assert [(row["key"], row["value"]) for row in found] == [("\0ca", "v"), (None, None)]


@pytest.mark.parametrize("output_format", ["json", "jsonl", "csv"])
def test_times_in_iso_8601(output_format: str) -> None:
    log = DATA / "transactions-0"
    options = ("--limit", 1, "--columns", "offset,timestamp", "--format", output_format)
    assert "1714000000000" in run("records", log, *options).stdout
    assert "2024-04-24T23:06:40.000Z" in run("records", log, *options, "--iso").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1763902387", "1970-01-21T09:58:22.387Z in milliseconds, and 2025-11-23T12:53:07Z in"),
        ("2025", "1970-01-01T00:00:02.025Z in milliseconds, and 1970-01-01T00:33:45Z in seconds"),
        ("99999999999999999", "3170843-11-07T09:46:39.999Z in milliseconds; write"),
        ("yesterday", "'yesterday' is no time; write 2025-11-23T10:00:00+01:00"),
    ],
)
def test_a_number_that_may_be_seconds_is_refused(text: str, said: str) -> None:
    for option in ("--from-time", "--to-time"):
        done = run("records", DATA / "transactions-0", option, text)
        assert done.returncode == 2
        assert said in done.stderr
    assert "-7d" in run("records", "--help").stdout


def test_now_is_a_time() -> None:
    log = DATA / "transactions-0"
    assert rows("records", log, "--from-time", "now") == []
    assert rows("records", log, "--to-time", "now") == rows("records", log)
    for command in ("audit", "txns"):
        assert run(command, log, "--now", "now").returncode in (0, 1)
    assert len(rows("groups", DATA, "--as-of", "now")) == len(rows("groups", DATA))


# ---- templates, as of kcat -------------------------------------------------------------------


@pytest.fixture
def records_log(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3" / f"{0:020}.log"
    path.parent.mkdir()
    records = [
        RecordV2(b"k\xff", b"a\n\0b", [(b"trace", b"abc"), (b"n", None)]),
        RecordV2(None, b"", [], offset_delta=1),
        RecordV2(b"", None, [(b"trace", b"x")], offset_delta=2, timestamp_delta=5),
    ]
    path.write_bytes(batch_of(records, base_offset=0))
    return path


def _printed(*arguments: object) -> bytes:
    command = [sys.executable, "-m", "kafkascan", "records", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def test_a_template(records_log: Path) -> None:
    template = r"%t [%p] at %o (%T): %K:%k %S:%s %R %h%%\x7c\t\n"
    times = [T0, T0, T0 + 5]
    assert _printed(records_log, "-f", template) == b"".join(
        b"orders [3] at %d (%d): %s%%|\t\n" % (offset, times[offset], text)
        for offset, text in enumerate(
            (
                b"2:k\xff 4:a\n\0b \0\0\0\4 trace=abc,n=NULL",
                b"-1: 0: \0\0\0\0 ",
                b"0: -1: \xff\xff\xff\xff trace=x",
            )
        )
    )
    assert _printed(records_log, "-f", "%o", "-c", 2) == b"01"
    assert _printed(records_log, "-f", r"%s\n", "--value-as", "hex") == b"610a0062\n\n\n"
    assert _printed(records_log, "-K", "%:") == b"k\xff%:a\n\0b\n%:\n%:\n"
    file = records_log.with_name("lines")
    _printed(records_log, "-f", r"%k|", "--output", file)
    assert file.read_bytes() == b"k\xff|||"


def test_a_template_of_a_file_without_a_topic(records_log: Path) -> None:
    file = records_log.parents[1] / "copy.log"
    shutil.copy(records_log, file)
    assert _printed(file, "-f", r"%t[%p]%o\n") == b"[]0\n[]1\n[]2\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-f", "text"), "it has no field"),
        (("-f", "%q"), "'%q' is unknown; known: %t"),
        (("-f", "%s%"), "'%' is unknown"),
        (("-f", r"%s\q"), r"'\\q' is unknown"),
        (("-f", r"%s\x1"), r"'\\x' is unknown"),
        (("-f", "%s" * 49), "more than 48 fields"),
        (("-f", "%s" + "-" * 201), "more than 200 bytes"),
        (("-K", "-" * 201), "more than 200 bytes"),
        (("-f", "%s", "-K", ":"), "cannot be combined"),
        (("-f", "%s", "--format", "csv"), "cannot be combined"),
        (("-f", "%s", "--columns", "offset"), "cannot be combined"),
    ],
)
def test_templates_that_are_refused(
    arguments: tuple[str, ...], reason: str, records_log: Path
) -> None:
    done = run("records", records_log, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_template_of_many_long_records(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    values = [bytes([65 + number % 26]) * (number * 37) for number in range(1000)]
    path.write_bytes(ks.build_batches(value=values, compression_type="lz4"))
    assert _printed(path, "-f", r"%s\n") == b"".join(value + b"\n" for value in values)


# ---- samples ---------------------------------------------------------------------------------


def _offsets(*arguments: object) -> list[tuple[str, int]]:
    found = rows("records", *arguments, "--columns", "topic,offset")
    return [(row["topic"], row["offset"]) for row in found]


def test_a_sample_is_a_part_of_the_records() -> None:
    known = _offsets(DATA)
    found = _offsets(DATA, "--sample", 50)
    assert len(found) == len(set(found)) == 50
    assert [one for one in known if one in set(found)] == found
    assert _offsets(DATA, "--sample", 50) == found
    assert _offsets(DATA, "--sample", 50, "--seed", 1) != found
    assert _offsets(DATA, "--sample", 10**9) == known
    assert _offsets(DATA, "--sample", 0) == []


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("control", ["skip", "only", "include"])
def test_a_sample_of_what_a_query_selects(isolation: str, control: str) -> None:
    log = (DATA / "transactions-0", "--isolation", isolation, "--control", control)
    assert _offsets(*log, "--sample", 1000) == _offsets(*log)
    limits = ("--from-offset", 7, "--to-offset", 20)
    assert _offsets(*log, *limits, "--sample", 1000) == _offsets(*log, *limits)


def test_each_record_is_chosen_as_often(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    sizes = [1, 7, 2, 10]
    firsts = [sum(sizes[:number]) for number in range(4)]
    path.write_bytes(
        b"".join(
            ks.build_batches(value=[b"v"] * size, offset=first)
            for first, size in zip(firsts, sizes, strict=True)
        )
    )
    counts = [0] * 20
    for seed in range(200):
        for _, offset in _offsets(path, "--sample", 5, "--seed", seed):
            counts[offset] += 1
    assert sum(counts) == 1000
    assert all(25 < count < 80 for count in counts)


@pytest.mark.parametrize(
    "options",
    [("--grep", "value-[0-9]*7"), ("--key", "key-3"), ("--header", "h"), ("--grep", "nothing")],
)
def test_a_sample_is_one_of_the_matches(options: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    records = [
        RecordV2(b"key-%d" % (i % 5), b"value-%d" % i, [(b"h", b"1")] if i % 3 else [], i)
        for i in range(50)
    ]
    path.write_bytes(b"".join(batch_of(records, base_offset=50 * number) for number in range(4)))
    matches = _offsets(path, *options)
    found = _offsets(path, *options, "--sample", 7)
    assert len(found) == min(7, len(matches))
    assert set(found) <= set(matches)
    assert found == sorted(found)
    assert _offsets(path, *options, "--sample", 7, "--seed", 1) != found or not matches
    assert _offsets(path, *options, "--sample", 7, "--limit", 2) == found[:2]
    assert _offsets(path, *options, "--sample", 1000) == matches


def test_a_sample_of_the_matches_in_old_messages() -> None:
    """Their headers do not contain the number of records, but their matches are counted."""
    matches = _offsets(LEGACY, "--grep", "1")
    assert len(matches) > 10
    assert _offsets(LEGACY, "--grep", "1", "--sample", 10**6) == matches
    assert len(_offsets(LEGACY, "--grep", "1", "--sample", 10)) == 10


def test_what_cannot_be_sampled() -> None:
    for options in (("--tail", 1), ("--around", 1), ("--follow",)):
        done = run("records", DATA, "--sample", 1, *options)
        assert (done.returncode, "--sample cannot be combined" in done.stderr) == (2, True)
    old = DATA.parents[1] / "kafka-2.8.2" / "data" / "magic-mixed-0"
    done = run("records", old, "--sample", 1000)
    assert done.returncode == 1
    assert "3 compressed messages of old formats are not sampled" in done.stderr


def test_headers(records_log: Path) -> None:
    for arguments, offsets in (
        (("trace",), [0, 2]),
        (("trace=abc",), [0]),
        (("trace=abc", "n"), [0]),
        (("n=",), []),
        (("other",), []),
    ):
        options = [part for one in arguments for part in ("--header", one)]
        found = rows("records", records_log, *options, "--columns", "offset")
        assert [row["offset"] for row in found] == offsets


# ---- sorted records --------------------------------------------------------------------------

TYPED = GOLDEN / "kafka-4.4.0-typed" / "data"
RAW = ("--key-as", "hex", "--value-as", "hex", "--decode", "none")


@pytest.fixture(params=[False, True], ids=["in memory", "in parts"])
def in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort records in memory, and by merging parts of a few records."""
    if request.param:
        monkeypatch.setattr(sorted_records, "_PART_BYTES", 1 << 12)
        monkeypatch.setattr(sorted_records, "_BLOCK_BYTES", 1 << 9)
        monkeypatch.setattr(record_commands, "_EXPORTED_RECORDS", 7)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("column", ["timestamp", "key", "value", "size_in_bytes", "segment"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_records_are_sorted_by_any_column(column: str, sign: str) -> None:
    """Equal ones stay in their order, nulls come last, and the column need not be shown."""
    table = rows("records", DATA, "--columns", f"topic,partition,offset,{column}", *RAW)
    if column == "timestamp":
        table = [{**row, column: None if row[column] == -1 else row[column]} for row in table]
    present = [row for row in table if row[column] is not None]
    present.sort(key=lambda row: row[column], reverse=sign == "-")
    expected = [*present, *(row for row in table if row[column] is None)]
    found = rows("records", DATA, "--columns", "topic,partition,offset", "--sort", sign + column)
    assert [(one["topic"], one["partition"], one["offset"]) for one in found] == [
        (one["topic"], one["partition"], one["offset"]) for one in expected
    ]
    first = ("--sort", sign + column, "--limit", 7, "--columns", "topic,partition,offset")
    assert rows("records", DATA, *first) == found[:7]


PRINTED = {
    "table": (),
    "wide": ("--wide",),
    "csv": ("--format", "csv", "--columns", "all"),
    "json": ("--format", "json", "--columns", "all"),
    "iso": ("--format", "jsonl", "--iso"),
    "hex": ("--format", "json", *RAW),
    "values": ("--format", "json", "--value-as", "json"),
    "template": ("-f", r"%t %p %o %T %K %k %S %s %h\n"),
}


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("form", PRINTED)
@pytest.mark.parametrize(
    "log",
    [
        (DATA / "headers-0",),
        (DATA / "__consumer_offsets-0",),
        (DATA / "transactions-0", "--control", "include", "--limit", "9"),
        (LEGACY / "magic-0-0",),
        (TYPED, "-t", "payments", "--value-as", "auto"),
    ],
    ids=["headers", "groups", "control", "legacy", "typed"],
)
def test_sorted_records_are_printed_as_others(
    form: str, log: tuple[object, ...], tmp_path: Path
) -> None:
    plain, ordered = tmp_path / "plain", tmp_path / "ordered"
    expected = run("records", *log, *PRINTED[form], "--output", plain)
    assert expected.returncode == 0
    found = run("records", *log, *PRINTED[form], "--sort", "offset", "--output", ordered)
    assert found == expected
    lines = [path.read_bytes().splitlines() for path in (ordered, plain)]
    if form in ("table", "wide"):  # the width of columns depends on the first rows
        lines = [[b" ".join(line.split()) for line in one] for one in lines]
    assert lines[0] == lines[1]


def test_keys_of_headers_are_sorted_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch_of([RecordV2(b"k", b"v", [(b"\xff", b"\xfe")])]))
    template = ("-f", r"%h\n")
    assert _printed(path, *template, "--sort", "key") == b"\xff=\xfe\n"


def test_sorted_records_in_parquet(tmp_path: Path) -> None:
    plain, ordered = tmp_path / "plain.parquet", tmp_path / "ordered.parquet"
    run("records", DATA, "--output", plain)
    assert run("records", DATA, "--sort", "-value", "--output", ordered).returncode == 0
    found, expected = (pyarrow.parquet.read_table(path) for path in (ordered, plain))
    assert found.schema == expected.schema
    order = [("value", "descending"), ("topic", "ascending"), ("offset", "ascending")]
    assert found["value"] == expected.sort_by(order)["value"]


def test_samples_and_last_records_are_sorted_after_they_are_chosen() -> None:
    for choice in (("--sample", 20), ("--tail", 20), ("--around", 5), ("--grep", "1")):
        chosen = _offsets(DATA, *choice)
        found = _offsets(DATA, *choice, "--sort", "-offset")
        assert found == sorted(chosen, key=lambda one: -one[1])


def test_what_cannot_be_sorted(tmp_path: Path) -> None:
    done = run("records", DATA, "--sort", "ofset")
    assert (done.returncode, "did you mean 'offset'?" in done.stderr) == (2, True)
    done = run("records", DATA, "--sort", "offset", "--follow")
    assert (done.returncode, "cannot be combined with --follow" in done.stderr) == (2, True)
    done = run("records", TYPED, "--value-as", "auto", "--sort", "offset")
    assert (done.returncode, "select one topic (-t)" in done.stderr) == (2, True)
    empty = tmp_path / f"{0:020}.log"
    empty.touch()
    assert rows("records", empty, "--sort", "offset") == []


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_a_file_beside_its_folder_is_read_by_itself(tmp_path: Path, is_first: bool) -> None:
    """It takes no offsets from the log, and the log is judged and cut as without it."""
    log = shutil.copytree(DATA / "small-segments-0", tmp_path / "data" / "orders-0")
    first, second, third, *_ = sorted(log.glob("*.log"))
    leftover = first.rename(f"{first}.deleted")
    third.unlink()
    start = ks.read_records(second)["offset"][1].item()
    (log.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
    paths = [leftover, log] if is_first else [log, leftover]
    found = [run("records", path, "--format", "csv", "--columns", "offset") for path in paths]
    both = run("records", *paths, "--format", "csv", "--columns", "offset")
    assert both.stdout.splitlines()[1:] == [
        line for one in found for line in one.stdout.splitlines()[1:]
    ]
    assert both.returncode == 1
    assert both.stderr == "".join(one.stderr for one in found)
    assert "OFFSET_GAP" in both.stderr
    assert "OFFSET_GAP" in run("verify", *paths).stderr


@pytest.mark.parametrize("verb", ["records", "batches"])
def test_the_tail_of_a_torn_log_that_an_index_leads_to(tmp_path: Path, verb: str) -> None:
    """The tail is where it is in the file, and not after as many bytes as were read."""
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    data = b"".join(batch_of([RecordV2(value=b"v" * 99)], base_offset=n) for n in range(400))
    log.write_bytes(data)
    assert run("index", "build", log, "--write").returncode == 0
    with log.open("ab") as file:
        file.write(data[: len(data) // 800])
    done = run(verb, log.parent, "--tail", 3, "--format", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 4)
    size = len(data) // 800
    assert f"position {len(data)}: {size} bytes follow the last complete batch" in done.stderr
    assert "intact" not in done.stderr
