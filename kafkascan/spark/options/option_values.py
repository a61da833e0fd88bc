"""Parse the values of options; convert offsets from and to JSON."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from kafkascan.format.suggestions import suggestion

TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = "Literal['earliest', 'latest'] | dict[TopicPartition, int]"

EARLIEST, LATEST = -2, -1
"""The offsets that mean earliest and latest in JSON, as in Spark's Kafka source."""

_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


def parse_text(value: Any) -> str:
    """Parse a string that is not empty."""
    if not str(value):
        raise ValueError("is empty")
    return str(value)


def parse_flag(value: Any) -> bool:
    """Parse ``true`` or ``false``, in any case."""
    flag = {"true": True, "false": False}.get(str(value).lower())
    if flag is None:
        raise ValueError("expected true or false")
    return flag


def parse_number(least: int, most: int = (1 << 63) - 1) -> Callable[[Any], int]:
    """Return a parser of integers from `least` to `most`."""

    def parse(value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if number < least:
            raise ValueError(f"expected at least {least}")
        if number > most:
            raise ValueError(f"expected at most {most}")
        return number

    return parse


def parse_size(value: Any) -> int:
    """Parse a size in bytes, with an optional unit: ``128m``."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", str(value))
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("expected a size in bytes, such as 134217728 or 128m")
    if int(match[1]) == 0:
        raise ValueError("expected a size of at least 1 byte")
    return int(match[1]) << _UNITS[match[2].lower()]


def parse_choice(*known: str) -> Callable[[Any], str]:
    """Return a parser of an enumeration, in any case."""

    def parse(value: Any) -> str:
        for one in known:
            if str(value).lower() == one.lower():
                return one
        raise ValueError(f"expected one of {', '.join(known)}{suggestion(str(value), known)}")

    return parse


def parse_names(value: Any) -> tuple[str, ...]:
    """Parse names: separated by commas, a JSON list, or a sequence."""
    if not isinstance(value, str):
        return tuple(str(one) for one in value)
    if value.lstrip().startswith("["):
        found = _json(value)
        if not all(isinstance(one, str) for one in found):
            raise ValueError("expected names")
        return tuple(found)
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError("expected names separated by commas")
    return names


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def parse_path(value: Any) -> tuple[str, ...]:
    """Parse one path."""
    return (parse_text(value),)


def parse_paths(value: Any) -> tuple[str, ...]:
    """Parse a JSON list of paths, or a sequence."""
    return parse_names(_json(value) if isinstance(value, str) else value)


def parse_pattern(value: Any) -> str:
    """Parse a regular expression."""
    try:
        re.compile(parse_text(value))
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return str(value)


def parse_partition_numbers(value: Any) -> tuple[int, ...]:
    """Parse partition numbers: ``0,3,5-7``, a number, or a sequence."""
    parts = value.split(",") if isinstance(value, str) else value
    found: list[int] = []
    for part in [parts] if isinstance(parts, int) else parts:
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", str(part))
        if match is None:
            raise ValueError("expected partitions such as 0,3,5-7")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)


def parse_offset_limit(value: Any) -> Offsets:
    """Parse ``earliest``, ``latest``, or offsets by topic and partition."""
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return "earliest" if value.lower() == "earliest" else "latest"
    try:
        return parse_offsets(_json(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise ValueError(f"is neither earliest nor latest; {error}") from None


def parse_offsets(topics: Any) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 23, "1": -2}}``, the format of Spark's Kafka source."""
    try:
        found = {
            (topic, _whole_number(partition)): _whole_number(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError('expected {"topic":{"0":23,"1":-2}}') from None
    if any(offset < EARLIEST for offset in found.values()):
        raise ValueError("expected at least 0, or -1 for latest, -2 for earliest")
    return found


def _whole_number(value: Any) -> int:
    """Return an integer, or one in a string; `int` would truncate other numbers."""
    return int(value) if isinstance(value, str) else operator.index(value)


def parse_timestamps(value: Any) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 1000}}``: milliseconds, or -1 for latest, -2 for earliest."""
    return parse_offsets(_json(value) if isinstance(value, str) else value)


def parse_assignment(value: Any) -> tuple[TopicPartition, ...]:
    """Parse ``{"topic": [0, 1]}``, as Spark's Kafka source does."""
    topics = _json(value) if isinstance(value, str) else value
    try:
        return tuple(
            (topic, _whole_number(partition))
            for topic, partitions in topics.items()
            for partition in partitions
        )
    except (AttributeError, TypeError, ValueError):
        raise ValueError('expected {"topic":[0,1]}') from None


def parse_subscription(value: Any) -> tuple[str, ...]:
    """Parse names of topics; commas at the ends are ignored, as in Spark's Kafka source."""
    return parse_names(value.strip(" ,") if isinstance(value, str) else value)


def format_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the format that `parse_offsets` parses."""
    shown: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shown.setdefault(topic, {})[str(partition)] = offset
    return shown


def parse_storage_options(value: Any) -> str:
    """Parse a JSON object or a mapping; return JSON."""
    options = _json(value) if isinstance(value, str) else dict(value)
    if not isinstance(options, dict):
        raise ValueError("expected a JSON object")
    return json.dumps(options, sort_keys=True)
