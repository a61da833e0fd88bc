"""Write rows as an aligned table for people: short values, and lines that fit the terminal."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click
import numpy as np
from rich.filesize import decimal

from kafkascan.batches.columns import as_datetime64
from kafkascan.cli.row_writers import Columns, Writer, plain_text
from kafkascan.format.texts import escaped, printable

# Columns in milliseconds that a table shows as UTC times.
TIME_COLUMNS = frozenset(
    {
        "timestamp",
        "base_timestamp",
        "max_timestamp",
        "delete_horizon_ms",
        "first_timestamp",
        "last_timestamp",
        "age_at",
        "commit_timestamp",
        "expire_timestamp",
        "state_timestamp",
        "start_timestamp",
        "create_timestamp",
        "write_timestamp",
        "update_timestamp",
        "issue_timestamp",
        "event_timestamp",
        "expiration_timestamp",
    }
)
# Columns of bytes that a table shows in kB, MB, and so on. Positions and sizes that somebody
# may have to type again, such as valid_bytes, are not among them.
_SIZE_COLUMNS = frozenset({"size", "new_size", "total_bytes", "records_bytes", "stored_bytes"})
_AGE_COLUMNS = frozenset({"age_ms"})
_FILE_COLUMNS = frozenset({"segment", "file"})
_PATH_COLUMNS = frozenset({"path", "target"})
# Details that people copy: they are not wrapped.
_WHOLE_LINES = frozenset({"command"})
# Texts that a table shows in quotes: a dash is a null.
_QUOTED = ("", "-", '""', '"-"')
# Longest text of a table's cell, in characters; and the shortest to which a narrow terminal cuts,
# and a very narrow one.
_MAX_CELL, _MIN_CELL, _SHORTEST_CELL = 120, 12, 6
_MAX_PATH = 48
_GAP, _NARROW_GAP, _INDENT = "  ", " ", "    "
# Characters of a line of details where there is no terminal.
_DETAILS_WIDTH = 100
_LEADING_ZEROS = re.compile(r"^0{3,}(?=\d)")
_COLOURS = {
    ("severity", "error"): "red",
    ("severity", "warning"): "yellow",
    ("end", "CORRUPT"): "red",
    ("end", "TORN_TAIL"): "yellow",
    ("end", "ZERO_TAIL"): "yellow",
    ("crc_is_valid", "false"): "red",
    ("is_hanging", "true"): "yellow",
    ("is_difference", "true"): "yellow",
    ("is_exact", "false"): "yellow",
    ("outcome", "lost"): "red",
}
_DAY = 86_400_000
_UNITS = ((_DAY, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True)
class TableStyle:
    """
    How a table looks.

    Attributes
    ----------
    details : tuple of str
        Columns of long texts: lines below their row instead of cells. An empty one has no line.
    is_exact : bool
        Whether sizes, durations and file names are shown in full.
    width : int or None
        Characters of a line; None: as many as the cells need.
    has_colours : bool
    """

    details: tuple[str, ...] = ()
    is_exact: bool = False
    width: int | None = None
    has_colours: bool = False


class TableWriter(Writer):
    """Aligned text; times in UTC."""

    def __init__(self, names: Sequence[str], out: TextIO, style: TableStyle) -> None:
        super().__init__(names, out)
        self._style = style
        self._widths: list[int] = []
        self._is_number: list[bool] = []
        self._gap = _GAP

    def write(self, columns: Columns) -> None:
        if not columns[self.names[0]]:
            return
        cells = [_cells(name, columns[name], self._style) for name in self.names]
        if not self._widths:
            self._is_number = [_are_numbers(columns[name]) for name in self.names]
            self._begin([max(map(len, column)) for column in cells])
        details = [_details(name, columns[name]) for name in self._style.details]
        for number, row in enumerate(zip(*cells, strict=True)):
            self._write_line(row, self.names)
            for name, texts in zip(self._style.details, details, strict=True):
                if texts[number]:
                    self._write_details(name, texts[number])

    def _begin(self, needed: list[int]) -> None:
        """Choose the widths of columns by those of their cells, and write the header."""
        plain = [[name] for name in self.names]
        stacked = [_stacked(name, width) for name, width in zip(self.names, needed, strict=True)]
        limit = self._style.width
        for header, self._gap, shortest in (
            (plain, _GAP, _MIN_CELL),
            (stacked, _GAP, _MIN_CELL),
            (stacked, _NARROW_GAP, _SHORTEST_CELL),
        ):
            widths = _with_header(needed, header)
            self._widths = _fitted(widths, self._is_number, limit, shortest, self._gap)
            if _excess(self._widths, limit, self._gap) <= 0:
                break
        for line in range(-max(map(len, header)), 0):
            words = [words[line] if len(words) >= -line else "" for words in header]
            self._write_line(words, self.names)

    def close(self) -> None:
        if not self._widths:
            self._is_number = [False] * len(self.names)
            self._begin([0] * len(self.names))

    def _write_line(self, row: Sequence[str], names: Sequence[str]) -> None:
        padded = []
        for name, cell, width, is_number in zip(
            names, row, self._widths, self._is_number, strict=True
        ):
            text = _shortened(cell, width)
            text = text.rjust(width) if is_number else text.ljust(width)
            colour = _COLOURS.get((name, cell)) if self._style.has_colours else None
            padded.append(click.style(text, fg=colour) if colour else text)
        self.out.write(self._gap.join(padded).rstrip() + "\n")

    def _write_details(self, name: str, text: str) -> None:
        if name in _WHOLE_LINES:
            self.out.write(f"{_INDENT}{text}\n")
            return
        label = "" if name == self._style.details[0] else f"{name}: "
        lines = textwrap.wrap(
            label + text,
            max(self._style.width or _DETAILS_WIDTH, 2 * _MIN_CELL),
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.out.write("".join(f"{line}\n" for line in lines))


def _with_header(needed: Sequence[int], header: Sequence[Sequence[str]]) -> list[int]:
    return [max(width, *map(len, words)) for width, words in zip(needed, header, strict=True)]


def _excess(widths: Sequence[int], limit: int | None, gap: str) -> int:
    """Return by how many characters a line is longer than the limit."""
    return -1 if limit is None else sum(widths) + len(gap) * (len(widths) - 1) - limit


def _stacked(name: str, width: int) -> list[str]:
    """Return a name in lines that end with an underscore: those of a column of some width."""
    lines = [""]
    for word in re.findall("[^_]*_|[^_]+$", name):
        if lines[-1] and len(lines[-1] + word) > width:
            lines.append(word)
        else:
            lines[-1] += word
    return lines


def _fitted(
    widths: Sequence[int],
    is_number: Sequence[bool],
    limit: int | None,
    shortest: int,
    gap: str,
) -> list[int]:
    """Return the widths; the widest columns of text are cut until a line fits."""
    excess = _excess(widths, limit, gap)
    fitted = list(widths)
    texts = [number for number, numeric in enumerate(is_number) if not numeric]
    while excess > 0 and texts:
        widest = max(texts, key=fitted.__getitem__)
        if fitted[widest] <= shortest:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted


def _shortened(text: str, width: int) -> str:
    """Return a text of at most `width` characters, cut in its middle."""
    if len(text) <= width:
        return text
    ends = width - 1
    return f"{text[: ends // 2]}…{text[len(text) - (ends - ends // 2) :]}"


def _details(name: str, values: Sequence[Any]) -> list[str]:
    """Return texts of any length; a null is empty."""
    return [printable(plain_text(value)) for value in values]


def _cells(name: str, values: Sequence[Any], style: TableStyle) -> list[str]:
    if name in TIME_COLUMNS:
        times = as_datetime64(np.array([-1 if v is None else v for v in values], np.int64))
        return ["-" if np.isnat(time) else f"{time}Z" for time in times]
    short = None if style.is_exact else _SHORT_FORMS.get(name)
    if short is None:
        return [_cell(value) for value in values]
    return [_cell(value if value is None else short(value)) for value in values]


def _cell(value: Any) -> str:
    if value in _QUOTED:
        return json.dumps(value)
    # Other values become JSON, which has its own escapes.
    text = escaped(value) if isinstance(value, str) else printable(plain_text(value))
    if len(text) > _MAX_CELL:
        text = text[: _MAX_CELL - 1] + "…"
    return text or "-"


def _are_numbers(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) in (int, float) for value in known)


def _age(milliseconds: int) -> str:
    """Return a duration in its largest unit: 4 d, 12 min, 300 ms."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            return f"{milliseconds // size:,} {unit}"
    return f"{milliseconds} ms"


def _without_zeros(name: str | int) -> str:
    """Return the name of a file without the zeros of its base offset: …5.log."""
    return _LEADING_ZEROS.sub("…", str(name))


_SHORT_FORMS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(_SIZE_COLUMNS, lambda size: decimal(size).replace(" bytes", " B")),
    **dict.fromkeys(_AGE_COLUMNS, _age),
    **dict.fromkeys(_FILE_COLUMNS, _without_zeros),
    **dict.fromkeys(_PATH_COLUMNS, lambda path: _shortened(str(path), _MAX_PATH)),
}
