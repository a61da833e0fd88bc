"""Options of a read. Spark passes them as strings with lower-cased names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.format.file_names import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from kafkascan.format.suggestions import suggestion
from kafkascan.logs.queries.conditions import Condition, Span, parse_condition
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.schemas.registry import Registry
from kafkascan.schemas.values import ReaderSchema
from kafkascan.spark.options.option_values import (
    EARLIEST,
    Offsets,
    TopicPartition,
    parse_assignment,
    parse_choice,
    parse_flag,
    parse_names,
    parse_number,
    parse_offset_limit,
    parse_partition_numbers,
    parse_path,
    parse_paths,
    parse_pattern,
    parse_size,
    parse_storage_options,
    parse_subscription,
    parse_text,
    parse_timestamps,
)
from kafkascan.spark.options.typed_fields import parse_registry, reader_of, typed_field
from kafkascan.spark.options.view_schemas import VIEW_NAMES, default_columns, find_columns
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Field

_FIELDS = (TOPIC, PARTITION, SEGMENT, *BATCH_SCHEMA)
_NAMES = tuple(one.name for one in _FIELDS)
_TEXT_NAMES = tuple(one.name for one in _FIELDS if one.type == "string")

ColumnLookup: TypeAlias = Callable[[str], object]
"""Returns the values of a column, or the single value of a constant column, by name."""


@dataclass(frozen=True)
class WhereClause:
    """
    A parsed condition. Create one with `WhereClause.parse`.

    Attributes
    ----------
    text : str
    condition : Condition
    """

    text: str
    condition: Condition

    @classmethod
    def parse(cls, text: str) -> WhereClause:
        """Parse a condition, as `parse_condition` does."""
        return cls(text, parse_condition(text, _NAMES, _TEXT_NAMES))

    def may_match_file(self, file: Mapping[str, Any]) -> bool:
        """Whether batches of a file may match, given its topic, partition and segment."""
        spans = {name: Span(value, value) for name, value in file.items()}
        return bool(self.condition.may_hold(spans))

    def mask(self, look_up: ColumnLookup, count: int) -> NDArray[np.bool_]:
        """
        Return a mask of the batches that match.

        Parameters
        ----------
        look_up : callable
        count : int
            Number of batches.
        """
        values = {name: look_up(name) for name in self.condition.columns}
        spans = {name: Span(value, value) for name, value in values.items()}
        return np.broadcast_to(np.asarray(self.condition.may_hold(spans)), (count,))


_ISOLATION_LEVEL = parse_choice("read_uncommitted", "read_committed")

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")

CORRUPT_RECORD = Field("_corrupt_record", "string")
"""The column of records with path, position and reason of damage, in the mode PERMISSIVE."""


def _parse_where(value: Any) -> WhereClause:
    return value if isinstance(value, WhereClause) else WhereClause.parse(parse_text(value))


def _option(default: Any, parse: Callable[[Any], Any], *, is_content: bool = True) -> Any:
    """Return an option; those that select or cut files, or reach them, are no content."""
    return field(default=default, metadata={"parse": parse, "is_content": is_content})


@dataclass(frozen=True)
class Options:
    """
    Options of a read. Each field is an option, whose name is the field's in camel case.

    Attributes
    ----------
    paths : tuple of str
    view : {"records", "batches", "segments"}
    columns : tuple of str
        Names of columns; empty for the view's default columns.
    where : WhereClause or None
    topics, topic_pattern, partitions
        Select partitions; None selects all.
    subscribe_pattern, assign
        Select partitions as these options of Spark's Kafka source do; its ``subscribe`` is
        `topics`.
    starting_offsets, ending_offsets
        ``"earliest"``, ``"latest"``, or offsets by topic and partition. By default a stream
        starts at the latest offset, and any other read at the earliest.
    starting_timestamp, ending_timestamp : int or None
        Milliseconds; they select the offset of the first record that is not older. -1 means
        latest and -2 earliest, as in Kafka's protocol. They take precedence over
        `starting_offsets_by_timestamp`, and these over `starting_offsets`, as in Spark's Kafka
        source.
    starting_offsets_by_timestamp, ending_offsets_by_timestamp : dict or None
        Such timestamps by topic and partition.
    log_start_offset : int or None
        First offset of each log. None means as a broker has it; 0 is what is on disk.
    find_overlaps : bool
        Look up the ends of all segments, to read offsets once that several contain.
    mode : str or None
        One of `MODES`. None means FAILFAST for records, PERMISSIVE for the other views.
    verify : bool or None
        Whether checksums are verified. None means True for records, False for the other views.
    max_partition_bytes : int or None
        Maximum bytes of a task. None means 128 MiB for records, 1 GiB for the other views.
    min_partitions : int or None
        Number of tasks to aim at. None means eight tasks, of at least 32 MiB.
    tiered_layout : str or None
        The paths are those of remote storage with this layout, as in `open_tiered`. None means
        logs as a broker has them.
    tiered_keys : str
        A JSON object: by the id of a key pair, the file with its private key, which every
        executor has.
    registry : Registry or None
        Decodes values, and keys if `key_schema` is given, into columns with types. As an option of
        the data source, the place of the registry, as of `open_registry`; the driver reads it.
    key_schema, value_schema : str or None
        ``SUBJECT`` or ``SUBJECT:VERSION``: the schema of the column. Without `value_schema`, it is
        the newest one of the subject ``TOPIC-value``, if a single topic is selected.
    value_message : str
        Full name of the Protobuf message of values, of a schema with several.
    """

    paths: tuple[str, ...] = _option((), parse_paths, is_content=False)
    view: str = _option("records", parse_choice(*VIEW_NAMES))
    columns: tuple[str, ...] = _option((), parse_names)
    where: WhereClause | None = _option(None, _parse_where, is_content=False)
    topics: tuple[str, ...] | None = _option(None, parse_names, is_content=False)
    topic_pattern: str | None = _option(None, parse_pattern, is_content=False)
    subscribe_pattern: str | None = _option(None, parse_pattern, is_content=False)
    assign: tuple[TopicPartition, ...] | None = _option(None, parse_assignment, is_content=False)
    partitions: tuple[int, ...] | None = _option(None, parse_partition_numbers, is_content=False)
    path_glob_filter: str | None = _option(None, parse_text, is_content=False)
    starting_offsets: Offsets | None = _option(None, parse_offset_limit, is_content=False)
    ending_offsets: Offsets = _option("latest", parse_offset_limit, is_content=False)
    starting_timestamp: int | None = _option(None, parse_number(EARLIEST), is_content=False)
    ending_timestamp: int | None = _option(None, parse_number(EARLIEST), is_content=False)
    starting_offsets_by_timestamp: dict[TopicPartition, int] | None = _option(
        None, parse_timestamps, is_content=False
    )
    ending_offsets_by_timestamp: dict[TopicPartition, int] | None = _option(
        None, parse_timestamps, is_content=False
    )
    starting_offsets_by_timestamp_strategy: str = _option(
        "error", parse_choice("error", "latest"), is_content=False
    )
    log_start_offset: int | None = _option(None, parse_number(0), is_content=False)
    find_overlaps: bool = _option(False, parse_flag, is_content=False)
    include_headers: bool = _option(False, parse_flag)
    include_control_records: bool = _option(False, parse_flag)
    isolation_level: str = _option("read_uncommitted", _ISOLATION_LEVEL)
    verify: bool | None = _option(None, parse_flag)
    mode: str | None = _option(None, parse_choice(*MODES))
    ignore_missing_files: bool = _option(False, parse_flag, is_content=False)
    max_partition_bytes: int | None = _option(None, parse_size, is_content=False)
    min_partitions: int | None = _option(None, parse_number(1), is_content=False)
    max_decompressed_size: int = _option(DEFAULT_MAX_DECOMPRESSED_SIZE, parse_size)
    prefetch: int = _option(3, parse_number(0, 1000), is_content=False)
    storage_options: str = _option("{}", parse_storage_options, is_content=False)
    tiered_layout: str | None = _option(None, parse_choice("auto", "aiven", "local", "pinterest"))
    tiered_keys: str = _option("{}", parse_storage_options)
    registry: Registry | None = _option(None, parse_registry)
    key_schema: str | None = _option(None, parse_text)
    value_schema: str | None = _option(None, parse_text)
    value_message: str = _option("", parse_text)
    max_offsets_per_trigger: int | None = _option(None, parse_number(1), is_content=False)
    max_bytes_per_trigger: int | None = _option(None, parse_size, is_content=False)
    fail_on_data_loss: bool = _option(True, parse_flag, is_content=False)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """
        Parse options.

        Parameters
        ----------
        given : mapping of str
            Names in any case. Values are strings, or values of the option's own type.

        Raises
        ------
        ValueError
            If an option is unknown or a value is invalid. The message suggests the most similar
            name.
        """
        values: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in given.items():
            known = _BY_LOWER_NAME.get(name.lower())
            if known is None:
                hint = suggestion(name, _BY_LOWER_NAME_SHOWN.values())
                raise ValueError(f"kafkascan has no option {name!r}{hint}")
            name_of_field, parse = known
            if value is None:
                continue
            shown = _BY_LOWER_NAME_SHOWN[name.lower()]
            try:
                parsed = parse(value)
            except ValueError as error:
                raise ValueError(f"option {shown}={value!r}: {error}") from None
            if name_of_field == "paths":
                parsed = values.get(name_of_field, ()) + parsed
            else:
                _require_first(shown, _SELECTIONS.get(name_of_field, name_of_field), names)
            values[name_of_field] = parsed
        return cls(**values).checked()

    def checked(self) -> Options:
        """Return these options; raise `ValueError` if they contradict each other."""
        if self.ending_offsets == "earliest":
            raise ValueError("endingOffsets cannot be 'earliest'")
        if self.view != "records" and self.isolation_level == "read_committed":
            raise ValueError("isolationLevel=read_committed requires the view 'records'")
        if self.registry is None and (self.key_schema or self.value_schema):
            raise ValueError("keySchema and valueSchema need the option registry")
        if self.registry is not None and self.view != "records":
            raise ValueError("registry requires the view 'records'")
        self.schema()
        return self

    @property
    def readers(self) -> dict[str, ReaderSchema]:
        """The schemas of the columns of keys and values that are decoded."""
        if self.registry is None:
            return {}
        value = self._value_reader(self.registry)
        if self.key_schema is None:
            return {"value": value}
        return {"key": reader_of(self.registry, "key", self.key_schema), "value": value}

    def _value_reader(self, registry: Registry) -> ReaderSchema:
        if self.value_schema is not None:
            return reader_of(registry, "value", self.value_schema, self.value_message)
        if self.topics is None or len(self.topics) != 1:
            raise ValueError(
                "registry: name the schema of the values with valueSchema=SUBJECT, or select one"
                " topic"
            )
        subject = f"{self.topics[0]}-value"
        newest = registry.newest(subject)
        if newest is None:
            raise ValueError(
                f"the registry has no version of the subject {subject!r}"
                " (valueSchema=SUBJECT names another one)"
            )
        return ReaderSchema(registry, newest, self.value_message)

    def replace(self, **changes: Any) -> Options:
        """Return a copy of these options with changes."""
        return replace(self, **changes)

    def starting_time(self, partition: TopicPartition) -> int | None:
        """Return the timestamp where the read of a partition starts, if it starts at one."""
        if self.starting_timestamp is not None:
            return self.starting_timestamp
        return (self.starting_offsets_by_timestamp or {}).get(partition)

    def ending_time(self, partition: TopicPartition) -> int | None:
        """Return the timestamp where the read of a partition ends, if it ends at one."""
        if self.ending_timestamp is not None:
            return self.ending_timestamp
        return (self.ending_offsets_by_timestamp or {}).get(partition)

    @property
    def starts_at_times(self) -> bool:
        """Whether timestamps select the first records."""
        return (self.starting_timestamp, self.starting_offsets_by_timestamp) != (None, None)

    @property
    def ends_at_times(self) -> bool:
        """Whether timestamps select the last records."""
        return (self.ending_timestamp, self.ending_offsets_by_timestamp) != (None, None)

    def schema(self) -> tuple[Field, ...]:
        """Return the columns of the rows, in order."""
        readers = self.readers
        return tuple(
            typed_field(one, readers[one.name]) if one.name in readers else one
            for one in self._view_columns()
        )

    def _view_columns(self) -> tuple[Field, ...]:
        # Damage has a column of its own in records.
        keeps_damage = self.view == "records" and self.mode == "PERMISSIVE"
        corrupt = {CORRUPT_RECORD.name: CORRUPT_RECORD} if keeps_damage else {}
        if self.columns:
            ours = [name for name in self.columns if name.lower() not in corrupt]
            found = {one.name.lower(): one for one in find_columns(self.view, ours)} | corrupt
            return tuple(found[name.lower()] for name in self.columns)
        columns = default_columns(self.view)
        if self.view == "records" and self.include_headers:
            columns += find_columns("records", ["headers"])
        if self.view != "records" and self.verify:
            columns += find_columns(self.view, [CRC_COLUMNS[self.view]])
        return (*columns, *corrupt.values())

    def selects(self, topic: str, partition: int) -> bool:
        """Whether records of a partition are requested, as far as its name tells."""
        return (
            self._selects_topic(topic)
            and (self.partitions is None or partition in self.partitions)
            and (self.assign is None or (topic, partition) in self.assign)
        )

    def _selects_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        if self.subscribe_pattern is not None:
            # Spark's Kafka source accepts a match anywhere in the name.
            is_match = re.search(self.subscribe_pattern, topic) is not None
            return is_match and topic not in _UNLISTED_TOPICS
        return True

    @property
    def selects_topics(self) -> bool:
        """Whether an option selects topics."""
        return any(getattr(self, name) is not None for name in _SELECTIONS)

    def of_all_partitions(self) -> Options:
        """Return these options without those that select partitions."""
        return self.replace(**dict.fromkeys([*_SELECTIONS, "partitions"]))

    @property
    def fails_fast(self) -> bool:
        """Whether damage fails the query."""
        return (self.mode or ("FAILFAST" if self.view == "records" else "PERMISSIVE")) == MODES[0]

    @property
    def verifies(self) -> bool:
        """Whether checksums are verified."""
        if self.view == "records":
            return self.verify is not False
        return bool(self.verify) or CRC_COLUMNS[self.view] in map(str.lower, self.columns)

    @property
    def task_bytes(self) -> int:
        """Maximum bytes of a task."""
        default = 1 << 27 if self.view == "records" else 1 << 30
        return default if self.max_partition_bytes is None else self.max_partition_bytes


# Topics that a broker does not list, or marks as internal: subscribePattern does not select them.
_UNLISTED_TOPICS = frozenset({METADATA_TOPIC, GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC})

# Options of which only one may be given.
_SELECTIONS = dict.fromkeys(("topics", "topic_pattern", "subscribe_pattern", "assign"), "topics")

CRC_COLUMNS = {"batches": "crc_is_valid", "segments": "bad_checksums"}


def _require_first(shown: str, group: str, names: dict[str, str]) -> None:
    """Raise `ValueError` for the second option of a group; `names` has the first one of each."""
    if group in names:
        is_same = names[group] == shown
        raise ValueError(
            f"option {shown} is given twice"
            if is_same
            else f"{names[group]} and {shown} cannot be combined"
        )
    names[group] = shown


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_BY_LOWER_NAME: dict[str, tuple[str, Callable[[Any], Any]]] = {
    _camel(one.name).lower(): (one.name, one.metadata["parse"]) for one in fields(Options)
} | {
    "path": ("paths", parse_path),
    "subscribe": ("topics", parse_subscription),
    "kafka.isolation.level": ("isolation_level", _ISOLATION_LEVEL),
    "kafka.check.crcs": ("verify", parse_flag),
}
_BY_LOWER_NAME_SHOWN = {name: name for name in _BY_LOWER_NAME}
_BY_LOWER_NAME_SHOWN |= {_camel(one.name).lower(): _camel(one.name) for one in fields(Options)}

OPTION_NAMES: tuple[str, ...] = tuple(_BY_LOWER_NAME_SHOWN.values())
"""The names of all options in camel case."""

# Options of Spark's Kafka source that concern its connections and tasks.
_OF_KAFKA_SOURCE = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
)


def without_connections(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """
    Separate the options of Spark's Kafka source that have no meaning for files.

    Returns
    -------
    tuple of dict and list
        The other options, and the names of those that have no meaning.
    """
    shown = {name.lower(): name for name in _OF_KAFKA_SOURCE}
    kept, dropped = {}, []
    for name, value in given.items():
        lower = name.lower()
        if lower in _BY_LOWER_NAME or not (lower in shown or lower.startswith("kafka.")):
            kept[name] = value
        else:
            dropped.append(shown.get(lower, name))
    return kept, sorted(dropped)
