"""Replay the topic of a schema registry, ``_schemas``, as a registry does when it starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.findings import Severity
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.topic_records import (
    COMPACTED,
    DELETED_RECORDS,
    AsOf,
    PartitionRecords,
    ReplayLimit,
    cleaned_offset,
    damage,
    inexact_state,
    require_reached,
)
from kafkascan.schemas.registry import (
    BAD_SCHEMA,
    Registry,
    RegistryBuilder,
    SchemaError,
    version_of,
)
from kafkascan.tables.table import Problem, Problems

UNKNOWN_KEYTYPE = "UNKNOWN_KEYTYPE"
"""Symbol of a problem: a record about something else than schemas and their settings."""

MAX_RECORD_SIZE = 8 << 20
"""Bytes of a key or value; a larger one is a problem. Kafka's default limit is 1 MiB."""

_LAST_VERSION = 2**31 - 1


def replay_registry(log: LogView, as_of: AsOf | None = None) -> Registry:
    """
    Return the state of a registry from its topic.

    All records are applied in the order of their offsets. The latest record of each key would not
    be enough: whether an id is a duplicate, and which versions a deletion of a subject means,
    depends on the records before.

    Parameters
    ----------
    log : LogView
        The partition of the topic.
    as_of : AsOf, optional
        By default the end of the log.

    Raises
    ------
    ValueError
        If `as_of` is an offset after the end of the log, or no time.
    """
    limit = ReplayLimit.of(as_of, log.partition.partition)
    records = PartitionRecords(log, limit)
    replay = _Replay(log)
    for table in records.before_limit():
        rows = zip(
            table["offset"].tolist(), table["timestamp"].tolist(), table["is_control"].tolist(),
            table.items("key"), table.items("value"), strict=True,
        )  # fmt: skip
        for offset, timestamp, is_control, key, value in rows:
            if not is_control:
                replay.apply(offset, timestamp, key, value)
    require_reached(as_of, [records.end_offset])
    problems = Problems([*damage(log, records.errors), *_missing(log, limit, records)])
    return replay.builder.build(problems)


def _missing(log: LogView, limit: ReplayLimit, records: PartitionRecords) -> Sequence[Problem]:
    """Return what the log no longer has. At its end, the latest record of each key is enough."""
    if log.start_offset > 0:
        reason = f"records before offset {log.start_offset} have been deleted"
        return [inexact_state(log, DELETED_RECORDS, records.end_offset, reason)]
    if limit.is_end or records.is_gapless:
        return []
    if records.end_offset >= cleaned_offset(log, CheckpointReader()):
        return []
    reason = "records before it have been removed"
    return [inexact_state(log, COMPACTED, records.end_offset, reason)]


class _Replay:
    """Applies records."""

    def __init__(self, log: LogView) -> None:
        one = log.partition
        self.builder = RegistryBuilder(str(one.path), topic=one.topic, partition=one.partition)
        self._kinds: dict[str, Callable[[_Record], None]] = {
            "SCHEMA": self._schema,
            "CONFIG": partial(self._set, self.builder.compatibility, "compatibilityLevel"),
            "MODE": partial(self._set, self.builder.modes, "mode"),
            "DELETE_SUBJECT": self._delete_subject,
            "CLEAR_SUBJECT": self._clear_subject,
            "CONTEXT": lambda record: None,  # names a context; those with schemas are known
            "NOOP": lambda record: None,
        }

    def apply(
        self, offset: int, timestamp: int, raw_key: bytes | None, raw_value: bytes | None
    ) -> None:
        """Apply a record; one that is not understood is a problem."""
        try:
            key = _object(raw_key or b"", "key")
            # Karapace and Redpanda take an empty value for a tombstone, too.
            value = _object(raw_value, "value") if raw_value else None
            record = _Record(offset, timestamp, key, value, len(raw_value or b""))
            kind = key.get("keytype")
            apply = self._kinds.get(kind) if isinstance(kind, str) else None
            if apply is None:
                text = f"the record at offset {offset} is of another kind: {str(kind)[:40]!r}"
                self.builder.add_problem(UNKNOWN_KEYTYPE, text, Severity.NOTE)
            elif not record.lost_a_race:
                apply(record)
        except SchemaError as error:
            text = f"the record at offset {offset} is not applied: {error}"
            self.builder.add_problem(BAD_SCHEMA, text)

    def _schema(self, record: _Record) -> None:
        subject, version = record.subject, record.number(record.key, "version")
        if subject is None:
            raise SchemaError("the key has no subject")
        if record.value is None:
            self.builder.remove(subject, version)
            return
        value = {**record.value, "subject": subject, "version": version}
        self.builder.put(version_of(value, record.offset, record.timestamp), record.size)

    @staticmethod
    def _set(settings: dict[str | None, str], name: str, record: _Record) -> None:
        found = None if record.value is None else record.value.get(name)
        if isinstance(found, str):
            settings[record.subject] = found
        else:
            settings.pop(record.subject, None)

    def _delete_subject(self, record: _Record) -> None:
        if record.subject is not None and record.value is not None:
            # Redpanda writes no version: all of them.
            has_version = record.value.get("version") is not None
            last = record.number(record.value, "version") if has_version else _LAST_VERSION
            self.builder.delete_subject(record.subject, last)

    def _clear_subject(self, record: _Record) -> None:
        if record.subject is not None and record.value is not None:
            self.builder.clear_subject(record.subject)


class _Record(NamedTuple):
    """A record with its key and value as objects, and the size of the value."""

    offset: int
    timestamp: int
    key: Mapping[str, object]
    value: Mapping[str, object] | None
    size: int

    @property
    def subject(self) -> str | None:
        """The subject of the key; None for the registry."""
        found = self.key.get("subject")
        if found is not None and not isinstance(found, str):
            raise SchemaError("subject is not a text")
        return found or None

    @property
    def lost_a_race(self) -> bool:
        """Whether another node of Redpanda's wrote first: it expects its keys at an offset."""
        expected = self.key.get("seq")
        return self.value is not None and expected is not None and expected != self.offset

    @staticmethod
    def number(values: Mapping[str, object], name: str) -> int:
        """Return the version in a key or value."""
        found = values.get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise SchemaError(f"{name} is not an integer")
        return found


def _object(raw: bytes, what: str) -> Mapping[str, object]:
    """Return the JSON object that a key or value is."""
    if len(raw) > MAX_RECORD_SIZE:
        raise SchemaError(f"the {what} has {len(raw):,} bytes, and at most 8 MiB are read")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the {what} is no JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise SchemaError(f"the {what} is no JSON object")
    return found
