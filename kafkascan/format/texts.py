"""Text from untrusted sources, for terminals and for JSON: names of files, keys, values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAYBE_UNPRINTABLE = re.compile(r"[^\n\t -~]")
_MOST_LINES = 30


def printable(text: str) -> str:
    r"""Return a text with escaped control characters; a byte that is not UTF-8 becomes ``\xff``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_lines(text: str) -> str:
    r"""Return lines of text with escaped control characters, but for tabs and the lines' ends."""
    return _MAYBE_UNPRINTABLE.sub(lambda match: printable(match[0]), text)


def escaped(text: str) -> str:
    """Return a printable text in which a backslash is doubled, so that escapes are unambiguous."""
    return printable(text.replace("\\", "\\\\"))


def with_escaped_bytes(text: str) -> str:
    r"""Return a text that can be encoded: a byte that is not UTF-8 becomes ``\xff``."""
    return _SURROGATE.sub(lambda match: _escaped(match[0]), text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""
    Return the JSON text of a value, in ASCII.

    Parameters
    ----------
    value : dict, list, str, int, float, bool or None
    indent : int, optional
        As in `json.dumps`.

    Returns
    -------
    str
        Without lone surrogates, which strict readers reject: names of files that are not UTF-8
        contain them. Such a byte becomes ``\xff``.
    """
    text = json.dumps(value, indent=indent)
    if "\\ud" not in text:
        return text
    readable = json.dumps(value, ensure_ascii=False)
    valid = _SURROGATE.sub(lambda match: json.dumps(_escaped(match[0]))[1:-1], readable)
    return json.dumps(json.loads(valid), indent=indent)


def few_lines(title: str, lines: Iterable[str]) -> str:
    """Return a title and the first lines, for a ``repr``: a terminal is no place for thousands."""
    rest = iter(lines)
    shown = [title, *islice(rest, _MOST_LINES)]
    others = sum(1 for _ in rest)
    return "\n".join([*shown, f"  ... {others:,} more lines"] if others else shown)


def _escaped(character: str) -> str:
    # Python decodes bytes that are not UTF-8 to these (PEP 383).
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def java_string(data: bytes) -> str:
    """Decode UTF-8 as ``new String(bytes, UTF_8)`` of Java does: malformed bytes are replaced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        from kafkascan._core.text_lines import java_text  # not to print a message

        return java_text(data).decode()
