"""Write rows as an aligned table for people: short values, and lines that fit the terminal."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Any, TextIO

import click
import numpy as np
from rich.cells import cell_len
from rich.filesize import decimal

from kafkascan.batches.columns import as_datetime64
from kafkascan.format.texts import escaped, printable
from kafkascan.format.times import age_text
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Field, Schema, Shown
from kafkascan.tables.table import Column, as_list
from kafkascan.tables.text_columns import ItemMemory, Repeated, plain_text
from kafkascan.tables.writers import Writer

# Fields that a heading shows once, if all rows have the same.
_PLACES = (TOPIC.name, PARTITION.name, SEGMENT.name)
_NULL = "-"
# Texts that a table shows in quotes: a dash is a null.
_QUOTED = ("", _NULL, '""', '"-"')
# Longest text of a table's cell, in characters; and the shortest to which a narrow terminal cuts.
_MAX_CELL, _MIN_CELL = 120, 12
_MAX_PATH = 48
_GAP, _INDENT = "  ", "    "
# Characters of a line of details where there is no terminal.
_DETAILS_WIDTH = 100
# Commands in a text, and what stands for their blanks while it is wrapped.
_CODE, _SOLID = re.compile("`[^`]+`"), "\0"
_LEADING_ZEROS = re.compile(r"^0{3,}(?=\d)")


@dataclass(frozen=True)
class TableStyle:
    """
    How a table looks.

    Attributes
    ----------
    is_chosen : bool
        Whether the columns were named: all of them are cells then, and none is left out.
    is_exact : bool
        Whether sizes, durations and file names are shown in full.
    width : int or None
        Characters of a line; None: as many as the cells need.
    has_colours : bool
    """

    is_chosen: bool = False
    is_exact: bool = False
    width: int | None = None
    has_colours: bool = False


class TableWriter(Writer):
    """
    Aligned text; times in UTC.

    The first chunk decides the layout: topic, partition and segment go to a heading if all of its
    rows have the same, and if a line is too long for the terminal, headers are stacked, texts are
    cut, and then columns are left out, the last ones of `Shown.USUALLY` first, which a line on
    stderr says. What still does not fit is shown vertically, a line per value.
    """

    def __init__(self, schema: Schema, out: TextIO, style: TableStyle) -> None:
        super().__init__(schema, out)
        self._style = style
        below = () if style.is_chosen else _of_rank(schema, Shown.BELOW)
        self._below = below
        self._fields = tuple(one for one in schema if one not in below)
        self._lifted: tuple[Field, ...] = ()
        self._heading: tuple[str, ...] = ()
        self._widths: list[int] = []
        self._left_out: tuple[Field, ...] = ()
        self._is_begun = self._is_vertical = False

    def write(self, columns: Mapping[str, Any], memory: ItemMemory | None = None) -> None:
        texts = {one.name: _column_cells(one, columns[one.name], self._style)
                 for one in (*self._lifted, *self._fields)}  # fmt: skip
        below = [[printable(plain_text(value)) for value in as_list(columns[one.name])]
                 for one in self._below]  # fmt: skip
        count = len(next(iter(texts.values())))
        if not count:
            return
        if not self._is_begun:
            self._begin(texts)
        shown = [texts[one.name] for one in self._fields]
        if self._is_vertical:
            lines = [self._vertical(cells) for cells in _rows(shown, count)]
        else:
            lines = self._lines(shown, count)
        if below:
            added = map(self._lines_below, _rows(below, count))
            lines = [line + more for line, more in zip(lines, added, strict=True)]
        rest = iter(lines)
        for place, same in groupby(_rows([texts[one.name] for one in self._lifted], count)):
            self._write_heading(place)
            self.out.write("".join(line for _, line in zip(same, rest, strict=False)))

    def close(self) -> None:
        if not self._is_begun:
            self._begin({one.name: [] for one in self._fields})
        if self._left_out:
            self.out.flush()
            count = len(self._left_out)
            columns = "1 column does not fit" if count == 1 else f"{count} columns do not fit"
            names = ", ".join(one.name for one in self._left_out)
            click.echo(f"{columns}: {names}; --wide shows all", err=True)

    # ---- layout ----

    def _begin(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Choose what is shown, and how wide, by the cells of the first rows; write the header."""
        self._is_begun = True
        rows = len(next(iter(texts.values()), ()))
        if not self._style.is_chosen and rows > 1:
            places = (one for one in self._fields if one.name in _PLACES)
            self._lifted = tuple(takewhile(lambda one: len(set(texts[one.name])) == 1, places))
            self._fields = tuple(one for one in self._fields if one not in self._lifted)
        all_fields = self._fields
        needed = {name: max(_widths(cells), default=0) for name, cells in texts.items()}
        for fields, is_stacked in self._layouts():
            self._fields = fields
            names = [_stacked(one.name, needed[one.name] if is_stacked else None)
                     for one in fields]  # fmt: skip
            widths = [max(needed[one.name], *map(len, words))
                      for one, words in zip(fields, names, strict=True)]  # fmt: skip
            self._widths = self._fitted(widths)
            if self._excess(self._widths) <= 0:
                break
        else:
            self._is_vertical, self._fields = True, all_fields
        self._left_out = tuple(one for one in all_fields if one not in self._fields)
        self._header = names
        if not self._lifted and not self._is_vertical:
            self._write_header()

    def _layouts(self) -> Iterator[tuple[tuple[Field, ...], bool]]:
        """Yield the fields to show and whether headers are stacked, from the widest table on."""
        yield self._fields, False
        if self._style.width is None:
            return
        fields = list(self._fields)
        yield self._fields, True
        usual = [] if self._style.is_chosen else [f for f in fields if f.shown == Shown.USUALLY]
        for one in reversed(usual):
            fields.remove(one)
            yield tuple(fields), True

    def _excess(self, widths: Sequence[int]) -> int:
        """Return by how many characters a line is longer than the terminal."""
        width = self._style.width
        return -1 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width

    def _fitted(self, widths: Sequence[int]) -> list[int]:
        """Return the widths; the widest columns of text are cut until a line fits."""
        excess, fitted = self._excess(widths), list(widths)
        texts = [number for number, one in enumerate(self._fields) if _may_be_cut(one)]
        while excess > 0 and texts:
            widest = max(texts, key=fitted.__getitem__)
            if fitted[widest] <= _MIN_CELL:
                break
            fitted[widest] -= 1
            excess -= 1
        return fitted

    # ---- lines ----

    def _write_header(self) -> None:
        for line in range(-max(map(len, self._header), default=1), 0):
            words = [words[line] if len(words) >= -line else "" for words in self._header]
            self.out.writelines(self._lines([[word] for word in words], 1))

    def _write_heading(self, values: tuple[str, ...]) -> None:
        if not self._lifted or values == self._heading:
            return
        named = (f"{one.name} {value}" for one, value in zip(self._lifted, values, strict=True))
        if self._heading or any(value != _NULL for value in values):
            heading = _GAP.join(named)
            line = heading if self._style.width is None else _shortened(heading, self._style.width)
            self.out.write(("\n" if self._heading else "") + line + "\n")
        if not self._heading and not self._is_vertical:
            self._write_header()
        self._heading = values

    def _lines(self, columns: Sequence[Sequence[str]], count: int) -> list[str]:
        padded = list(map(self._padded, self._fields, columns, self._widths))
        return [_GAP.join(cells).rstrip() + "\n" for cells in _rows(padded, count)]

    def _padded(self, one: Field, cells: Sequence[str], width: int) -> Sequence[str]:
        """Return the cells of a column as they stand in a line."""
        texts = cells
        # Later rows may be longer than the first ones: numbers are never cut.
        if self._style.width is not None and _may_be_cut(one):
            texts = [_shortened(cell, width) for cell in cells]
        gaps = [" " * (width - taken) for taken in _widths(texts)]
        texts = list(map(str.__add__, *((gaps, texts) if one.is_number else (texts, gaps))))
        if not (self._style.has_colours and one.alarms):
            return texts
        return [self._coloured(one, cell, text) for cell, text in zip(cells, texts, strict=True)]

    def _vertical(self, cells: Sequence[str]) -> str:
        label = max(len(one.name) for one in self._fields)
        room = max((self._style.width or _DETAILS_WIDTH) - label - len(_GAP), _MIN_CELL)
        lines = []
        for one, cell in zip(self._fields, cells, strict=True):
            text = cell if one.unit == "command" else _shortened(cell, room)
            lines.append(f"{one.name.ljust(label)}{_GAP}{self._coloured(one, cell, text)}\n")
        return "".join([*lines, "\n"])

    def _coloured(self, one: Field, cell: str, text: str) -> str:
        colour = one.alarms.get(cell) if self._style.has_colours else None
        return click.style(text, fg=colour) if colour else text

    def _lines_below(self, texts: Sequence[str]) -> str:
        found = []
        for one, text in zip(self._below, texts, strict=True):
            if not text:
                continue
            if one.unit == "command":  # to be copied: never broken
                found.append(f"{_INDENT}{text}\n")
                continue
            label = "" if one is self._below[0] else f"{one.name}: "
            width = max(self._style.width or _DETAILS_WIDTH, 2 * _MIN_CELL)
            found.append(_wrapped(label + text, width))
        return "".join(found)


@lru_cache(1024)  # many rows have the same reason
def _wrapped(text: str, width: int) -> str:
    lines = textwrap.wrap(
        _CODE.sub(lambda code: code[0].replace(" ", _SOLID), text),
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n".replace(_SOLID, " ") for line in lines)


def _rows(columns: Sequence[Sequence[str]], count: int) -> Iterable[tuple[str, ...]]:
    return zip(*columns, strict=True) if columns else [()] * count


def _widths(texts: Sequence[str]) -> Iterable[int]:
    """Return how many characters of a terminal each text takes."""
    # Those outside of ASCII may take two, but the one that stands for what was cut.
    is_plain = "".join(texts).replace("…", "").isascii()
    return map(len if is_plain else cell_len, texts)


def _of_rank(schema: Schema, rank: Shown) -> tuple[Field, ...]:
    return tuple(one for one in schema if one.shown == rank)


def _may_be_cut(one: Field) -> bool:
    return not one.is_number and one.type not in ("bool", "time") and one.unit != "command"


def _stacked(name: str, width: int | None) -> list[str]:
    """Return a name in lines that end with an underscore: those of a column of some width."""
    if width is None:
        return [name]
    lines = [""]
    for word in re.findall("[^_]*_|[^_]+$", name):
        if lines[-1] and len(lines[-1] + word) > width:
            lines.append(word)
        else:
            lines[-1] += word
    return lines


def _shortened(text: str, width: int) -> str:
    """Return a text of at most `width` characters, cut in its middle."""
    if (len(text) if text.isascii() else cell_len(text)) <= width:
        return text
    ends = max(width - 1 - (cell_len(text) - len(text)), 1)  # a wide character takes two cells
    return f"{text[: ends // 2]}…{text[len(text) - (ends - ends // 2) :]}"


def _column_cells(one: Field, column: Column, style: TableStyle) -> list[str]:
    if isinstance(column, Repeated):
        return list(column.mapped(lambda values: _cells(one, values, style)))
    return _cells(one, as_list(column), style)


def _cells(one: Field, values: Sequence[Any], style: TableStyle) -> list[str]:
    if one.type == "time":
        known = [-1 if value is None else value for value in values]
        times = np.datetime_as_string(as_datetime64(np.array(known, np.int64)))
        return [_NULL if time == "NaT" else f"{time}Z" for time in times.tolist()]
    short = None if style.is_exact else _SHORT_FORMS.get(one.unit)
    if short is None:
        if set(map(type, values)) == {int}:
            return list(map(str, values))
        # Most texts are their cells: `_cell` takes longer than all else.
        return [value if type(value) is str
                and len(_QUOTED[-1]) < len(value) <= _MAX_CELL
                and value.isprintable() and "\\" not in value
                else _cell(value) for value in values]  # fmt: skip
    return [_cell(value if value is None else short(value)) for value in values]


def _cell(value: Any) -> str:
    if value is None or value == []:
        return _NULL
    if isinstance(value, str) and value in _QUOTED:
        return json.dumps(value)
    if type(value) is int:
        return str(value)
    # Other values become JSON, which has its own escapes.
    if isinstance(value, str):
        text = escaped(value[: _MAX_CELL + 1])
    else:
        text = printable(plain_text(value))
    if len(text) > _MAX_CELL:
        text = text[: _MAX_CELL - 1] + "…"
    return text or _NULL


def _without_zeros(name: str | int) -> str:
    """Return the name of a file without the zeros of its base offset: …5.log."""
    return _LEADING_ZEROS.sub("…", str(name))


_SHORT_FORMS: Mapping[str, Callable[[Any], str]] = {
    "bytes": lambda size: decimal(size).replace(" bytes", " B"),
    "ms": age_text,
    "file": _without_zeros,
    "path": lambda path: _shortened(str(path), _MAX_PATH),
}
"""How a table shows values, by their units."""
