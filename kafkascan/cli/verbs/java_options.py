"""Command lines as Kafka's tools read them: the rules of joptsimple without abbreviations."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence

MAX_INT = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Argument(enum.Enum):
    """Whether an option takes an argument."""

    NONE = enum.auto()
    REQUIRED = enum.auto()
    OPTIONAL = enum.auto()


class OptionsError(ValueError):
    """A command line that the tool rejects."""


class ParsedOptions:
    """
    The options of a command line.

    Parameters
    ----------
    values : dict of str to list of str
        The arguments of each option that is set, in their order.
    """

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Return whether an option is set, with or without an argument."""
        return name in self._values

    def value(self, name: str) -> str | None:
        """
        Return the argument of an option; None without one.

        Raises
        ------
        OptionsError
            If the option has several arguments.
        """
        found = self._values.get(name, ())
        if len(found) > 1:
            raise OptionsError(f"option {name} has {len(found)} arguments, not one")
        return found[0] if found else None

    def integer(self, name: str, default: int) -> int:
        """
        Return the argument of an option as Java's ``Integer``.

        Raises
        ------
        OptionsError
        """
        text = self.value(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text) or not -MAX_INT - 1 <= int(text) <= MAX_INT:
            raise OptionsError(f"option {name} needs an integer of 32 bits, not {text!r}")
        return int(text)


def parse_options(arguments: Sequence[str], known: Mapping[str, Argument]) -> ParsedOptions:
    """
    Parse a command line as joptsimple does.

    Names may follow one dash or two, arguments ``=`` or a space. An argument of an option without
    one is ignored, and so is everything that belongs to no option. A required argument may
    begin with a dash, an optional one may not.

    Parameters
    ----------
    arguments : sequence of str
    known : dict of str to Argument

    Returns
    -------
    ParsedOptions

    Raises
    ------
    OptionsError
        If an option is not known, or its argument is missing.
    """
    found: dict[str, list[str]] = {}
    rest = list(reversed(arguments))
    while rest:
        token = rest.pop()
        if token == "--":
            break
        if not _is_option(token):
            continue
        name, has_argument, argument = token[2 if token[1] == "-" else 1 :].partition("=")
        if name not in known:
            raise OptionsError(f"{name} is not a recognized option")
        values = found.setdefault(name, [])
        if known[name] is Argument.NONE:
            continue
        if has_argument:
            values.append(argument)
        elif known[name] is Argument.REQUIRED:
            if not rest:
                raise OptionsError(f"option {name} requires an argument")
            values.append(rest.pop())
        elif rest and not _is_option(rest[-1]):
            values.append(rest.pop())
    return ParsedOptions(found)


def _is_option(token: str) -> bool:
    return token.startswith("-") and token != "-"
