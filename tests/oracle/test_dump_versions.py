"""Earlier versions of kafka-dump-log differ as docs/from-kafka-dump-log.md says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.topic_decoders import TOPIC_DECODERS
from kafkascan.internal_topics.transaction_states import TRANSACTION_STATUSES
from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command

pytestmark = pytest.mark.oracle

_GOLDEN = Path(__file__).parents[1] / "golden"
_TOOL = "org.apache.kafka.tools.DumpLogSegments"
# Up to Kafka 4.2.
_EARLIER_TOOL = "kafka.tools.DumpLogSegments"
_FIRST = f"{0:020}.log"
_OLD = f"kafka-2.8.2/data/magic-1-0/{_FIRST}"
_NEW = f"kafka-4.4.0/data/headers-0/{_FIRST}"
_TRANSACTIONS = f"kafka-2.8.2-groups/data/__transaction_state-0/{_FIRST}"
_METADATA = f"kafka-4.1.1/data/__cluster_metadata-0/{_FIRST}"
_DEEP = DumpOptions(is_deep=True, prints_data=True)


def theirs(
    class_path: str, *arguments: str, tool: str = _EARLIER_TOOL
) -> subprocess.CompletedProcess[str]:
    command = java_command(class_path, tool)
    return subprocess.run(
        [*command, *arguments], cwd=_GOLDEN, capture_output=True, text=True, check=False
    )


def ours(file: str, options: DumpOptions, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(_GOLDEN)
    pieces: list[bytes] = []
    dump_files([file], options, lambda data: pieces.append(bytes(data)), str)
    return b"".join(pieces).decode()


def options_of(class_path: str, tool: str = _EARLIER_TOOL) -> set[str]:
    done = theirs(class_path, "--help", tool=tool)
    return set(re.findall(r"^--([a-z-]+)", done.stdout + done.stderr, re.MULTILINE)) - {""}


def test_options(class_paths: ClassPaths) -> None:
    current, before, legacy = (
        options_of(one) for one in (class_paths.previous, class_paths.older, class_paths.legacy)
    )
    assert len(current) > 15
    assert current - before == {"share-group-state-decoder"}
    assert before - legacy == {"max-bytes", "remote-log-metadata-decoder"}
    assert legacy < before < current


def with_brace(text: str) -> str:
    return re.sub(r"( isValid: true crc: \d+)", r"\1}", text)


def without_bar(text: str) -> str:
    return text.replace("| payload:", " payload:")


@pytest.mark.parametrize("version", ["previous", "older"])
@pytest.mark.parametrize(
    ("file", "options", "skips", "changed"),
    [
        (_OLD, ["--print-data-log"], False, with_brace),
        (_NEW, ["--print-data-log"], False, str),
        (_NEW, ["--print-data-log", "--skip-record-metadata"], True, without_bar),
    ],
)
def test_lines(
    version: str,
    file: str,
    options: list[str],
    skips: bool,
    changed: Callable[[str], str],
    class_paths: ClassPaths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = theirs(getattr(class_paths, version), *options, "--files", file)
    expected = ours(file, replace(_DEEP, skips_metadata=skips), monkeypatch)
    assert done.stdout == changed(expected)


def test_records_of_kafka_s_own_topics(
    class_paths: ClassPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, name, sign in (
        (_TRANSACTIONS, "transaction-log-decoder", "key: transaction_metadata::transactionalId="),
        (_METADATA, "cluster-metadata-decoder", " controlType: LEADER_CHANGE(2)"),
    ):
        expected = ours(file, replace(_DEEP, decode=TOPIC_DECODERS[name]), monkeypatch)
        assert sign not in expected
        assert sign in theirs(class_paths.older, f"--{name}", "--files", file).stdout
        printed = theirs(class_paths.previous, f"--{name}", "--files", file).stdout
        assert printed == with_numbers_of_states(expected)


def with_numbers_of_states(text: str) -> str:
    """Return what tools up to 4.3 print of transactions."""
    numbers = {name: str(code) for code, name in TRANSACTION_STATUSES.items()}
    return re.sub(
        r'(?<="transactionStatus":)"(\w+)"', lambda found: numbers[found[1]], text
    )  # fmt: skip


def test_the_version_before(class_paths: ClassPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "--transaction-log-decoder", "--files", _TRANSACTIONS
    decode = TOPIC_DECODERS["transaction-log-decoder"]
    expected = ours(_TRANSACTIONS, replace(_DEEP, decode=decode), monkeypatch)
    assert theirs(class_paths.dump, *arguments, tool=_TOOL).stdout == expected
    before = theirs(class_paths.previous_dump, *arguments, tool=_TOOL).stdout
    assert before == with_numbers_of_states(expected) != expected
    assert options_of(class_paths.previous_dump, _TOOL) == options_of(class_paths.dump, _TOOL)


def test_the_layout_of_2_8(class_paths: ClassPaths) -> None:
    first, start, batch, record, *_ = theirs(
        class_paths.legacy, "--print-data-log", "--files", _NEW
    ).stdout.splitlines()
    assert (first, start) == (f"Dumping {_NEW}", "Starting offset: 0")
    assert "deleteHorizonMs" not in batch
    assert " compresscodec: NONE " in batch
    assert record.startswith("| offset: 0 isValid: true crc: null keySize: ")
    assert " batchSize: 3180 magic: 2 compressType: NONE position: 0 " in record
    snapshot = "kafka-4.4.0/data/idempotent-0/00000000000000000024.snapshot"
    producers = theirs(class_paths.legacy, "--files", snapshot).stdout
    assert "currentTxnFirstOffset: None" in producers
    assert "lastTimestamp" not in producers
    assert "Ignoring unknown file" in theirs(class_paths.legacy, "--files", "a.checkpoint").stderr


def test_names_of_decoders(class_paths: ClassPaths) -> None:
    new, old = "org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder"
    for name, class_path, is_known in (
        (old, class_paths.legacy, True), (new, class_paths.legacy, False),
        (old, class_paths.older, True), (new, class_paths.older, True),
        (old, class_paths.previous, False), (new, class_paths.previous, True),
    ):  # fmt: skip
        done = theirs(class_path, "--value-decoder-class", name, "--files", _NEW)
        assert ("ClassNotFoundException" not in done.stderr) == is_known, (name, class_path)
        is_deprecated = "is deprecated" in done.stdout + done.stderr
        assert is_deprecated == (name == old and class_path == class_paths.older)
