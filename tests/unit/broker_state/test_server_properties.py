"""A broker's configuration file, read as Java reads properties."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.broker_state.server_properties import parse_properties, read_server_properties
from tests.support.work import count_calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The examples of java.util.Properties.load.
        ("Truth = Beauty", {"Truth": "Beauty"}),
        (" Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth                    :Beauty", {"Truth": "Beauty"}),
        ("a  apple, banana, \\\n   cherry\\\n  , kiwi", {"a": "apple, banana, cherry, kiwi"}),
        ("cheeses", {"cheeses": ""}),
        ("\\:\\= x", {":=": "x"}),
        ("a\\tb=c\\u00e9\\z", {"a\tb": "c\u00e9z"}),
        # Comments, blank lines, ends of lines.
        ("# a=b\n  ! c=d\n\n\te=f\r\ng=h\ri=j", {"e": "f", "g": "h", "i": "j"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a= = b ", {"a": "= b "}),
        ("a=b\\", {"a": "b"}),
        ("\\", {}),
        ("=a", {}),
        ("\\\n\n#a=b\nc=d", {"c": "d"}),
        ("\\\n#a=b", {}),
        ("a\\\n  =\\\r\n  b\\\\\\\n c", {"a": "b\\c"}),
        ("", {}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_settings_that_loading_uses(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "log.dirs=/a, /b ,\nlog.dir=/c\nmetadata.log.dir=/m\nlog.index.interval.bytes= 100 \n"
        "producer.id.expiration.ms=5\nlog.cleanup.policy=compact,delete\n"
        "remote.log.storage.system.enable=True\n"
    )
    found = read_server_properties(path)
    assert found.log_dirs == [Path("/a"), Path("/b")]
    assert found.metadata_dir == Path("/m")
    assert (found.interval_bytes, found.producer_expiration_ms) == (100, 5)
    assert found.is_compacted
    assert found.has_remote_storage


def test_settings_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs= \nlog.dir=/c\n")
    found = read_server_properties(path)
    assert found.log_dirs == [Path("/c")]
    assert found.metadata_dir is found.interval_bytes is found.producer_expiration_ms is None
    assert not found.is_compacted
    assert not found.has_remote_storage
    path.write_text("node.id=1")
    assert read_server_properties(path).log_dirs == [Path("/tmp/kafka-logs")]


@pytest.mark.parametrize("text", ["", "\n", "# log.dirs=/a", "log4j.rootLogger=INFO", "PK\3\4"])
def test_other_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ks.format.CorruptCheckpointError, match="no setting of a broker") as refused:
        read_server_properties(path)
    assert "[NOT_PROPERTIES]" in str(refused.value)


@pytest.mark.parametrize("text", ["log.dirs=,", "log.dir=", "log.dirs= , ,"])
def test_no_data_directory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text)
    with pytest.raises(ks.format.CorruptCheckpointError, match="names no directory"):
        ks.recover(server_properties=path)


def test_a_directory_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=/a,/b, /a")
    assert read_server_properties(path).log_dirs == [Path("/a"), Path("/b")]


@pytest.mark.parametrize("piece", ["\n", " ", "\\\n ", "#", "[", "=", "a"])
def test_text_of_one_piece_is_read_without_a_call_each(piece: str) -> None:
    text = piece * 100_000
    parse_properties(text)
    assert count_calls(lambda: parse_properties(text)) < 1000


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=" + "/a," * 400_000)
    with pytest.raises(OSError, match="SIDE_FILE_TOO_LARGE"):
        read_server_properties(path)


@pytest.mark.parametrize("value", ["", "-1", "many", "1.5", "2147483648", "9" * 5000, "\u0661"])
def test_numbers_that_kafka_rejects(tmp_path: Path, value: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"log.index.interval.bytes={value}\n")
    with pytest.raises(ks.format.CorruptCheckpointError, match="BAD_PROPERTY"):
        read_server_properties(path)
