"""Text from untrusted sources, for terminals and for JSON."""

from __future__ import annotations

import json
import os

import pytest

from kafkascan.format.texts import escaped, json_text, printable, with_escaped_bytes

NOT_UTF8 = os.fsdecode(b"log\xff-dir")


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31m\n") == "a\\x1b[31m\\n"
    assert printable("schlüssel") == "schlüssel"
    assert printable(NOT_UTF8) == "log\\xff-dir"


def test_an_escaped_byte_and_its_escape_differ() -> None:
    assert escaped("\x01") == "\\x01"
    assert escaped("\\x01") == "\\\\x01"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_no_lone_surrogates(indent: int | None) -> None:
    value = {NOT_UTF8: [NOT_UTF8, "schlüssel 🔑", 1.5, None, 2**63], "high": "\ud800"}
    text = json_text(value, indent=indent)
    found = json.loads(text)
    assert found == {
        "log\\xff-dir": ["log\\xff-dir", "schlüssel 🔑", 1.5, None, 2**63],
        "high": "\\ud800",
    }
    assert text == json.dumps(found, indent=indent)
    json.dumps(found, ensure_ascii=False).encode()  # strict readers accept it


def test_other_json_is_as_usual() -> None:
    value = {"a": "ü🔑", "b": {"c": [1, True]}}
    assert json_text(value) == json.dumps(value)


def test_texts_for_arrow_can_be_encoded() -> None:
    assert with_escaped_bytes(NOT_UTF8).encode() == b"log\\xff-dir"
    assert with_escaped_bytes("\\xff") == "\\xff"
