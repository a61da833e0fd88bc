"""The state of a schema registry: subjects, versions, schemas by id and by GUID."""

from __future__ import annotations

import hashlib
import heapq
import json
import pickle
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkascan.format.findings import Severity
from kafkascan.format.schemas.message_decoder import SchemaError as SchemaError
from kafkascan.format.suggestions import suggestion
from kafkascan.format.texts import with_escaped_bytes
from kafkascan.schemas.registry_schemas import REGISTRY_SCHEMA
from kafkascan.tables.table import Problem, Problems, Table, problem_lines

if TYPE_CHECKING:
    from kafkascan.records.typed_items import ItemPlace
    from kafkascan.schemas.values import ReaderSchema, ValueDecoder

DUPLICATE_SCHEMA_ID = "DUPLICATE_SCHEMA_ID"
"""Symbol of a problem: an id has another text already; as a registry does, the first is kept."""
BAD_SCHEMA = "BAD_SCHEMA"
"""Symbol of a problem: a record, file or row that is no schema, or is above a limit."""

MAX_TOTAL_SIZE = 1 << 30
"""Bytes of records, files or answers with schemas; later schemas are problems."""
MAX_REFERENCED = 10_000
"""Schemas that one schema may refer to, directly and indirectly."""
NO_ID = -1
"""Id of a schema that only has a GUID."""

_LARGEST_INT32 = 2**31 - 1
_LARGEST_INT64 = 2**63 - 1
_MAX_PROBLEMS = 1_000
_GUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTRACT = ("metadata", "ruleSet")
_LEVELS_ABOVE = 64
# Names of the default context.
DEFAULT_CONTEXTS = ("", ".")


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """
    A schema that another one refers to.

    Attributes
    ----------
    name : str
        The name in the text: the path of an import, the full name of a type, a URI.
    subject : str
    version : int
        -1 for the newest one.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """
    A schema.

    Attributes
    ----------
    context : str
        The context of the id, such as ``.staging``; empty for the default one.
    id : int
        The number in the prefix of records; -1 if there is none.
    guid : str or None
        In lower case, with dashes.
    schema_type : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    text : str
    references : tuple of SchemaReference
    """

    context: str
    id: int
    guid: str | None
    schema_type: str
    text: str
    references: tuple[SchemaReference, ...]


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """
    A version of a subject.

    Attributes
    ----------
    subject : str
        With its context, if that is not the default one: ``:.staging:orders-value``.
    version : int
    schema : RegisteredSchema
    is_deleted : bool
        Whether it is deleted, but can still be read by its id.
    offset, timestamp : int or None
        Of the last record about it; None outside of a log.
    contract : str or None
        JSON text of its metadata and rules, if it has any.
    """

    subject: str
    version: int
    schema: RegisteredSchema
    is_deleted: bool = False
    offset: int | None = None
    timestamp: int | None = None
    contract: str | None = None


def context_of(subject: str) -> str:
    """Return the context of a subject: ``.staging`` of ``:.staging:orders-value``, or empty."""
    if not subject.startswith(":."):
        return ""
    context, colon, _ = subject[1:].partition(":")
    return context if colon and context != "." else ""


def _guid_of(text: str, references: object, contract: str | None) -> str | None:
    """Return the GUID that a registry derives, of the schemas for which it is known how."""
    if references or contract:
        return None
    raw = text.encode("utf-8", "surrogatepass")
    digest = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def version_of(
    value: object, offset: int | None = None, timestamp: int | None = None
) -> SubjectVersion:
    """
    Return the version that a record's value, or a row of a registry's answer, describes.

    Raises
    ------
    SchemaError
        If a field is missing or has a wrong type.
    """
    if not isinstance(value, dict):
        raise SchemaError("it is no object")
    subject, text = _text(value, "subject"), _text(value, "schema")
    references = tuple(_references(value.get("references") or []))
    contract = _contract_of(value)
    stored = _GUID.fullmatch(str(value.get("guid")).lower())
    # Of a copy of a registry, for which a GUID is enough.
    least = NO_ID if stored and offset is None else 0
    schema = RegisteredSchema(
        context_of(subject),
        _number(value, "id", least, _LARGEST_INT64),
        stored[0] if stored else _guid_of(text, references, contract),
        str(value.get("schemaType") or "AVRO"),
        text,
        references,
    )
    version = _number(value, "version", 1, _LARGEST_INT32)
    is_deleted = value.get("deleted") is True
    return SubjectVersion(subject, version, schema, is_deleted, offset, timestamp, contract)


def _contract_of(value: Mapping[str, object]) -> str | None:
    """Return the JSON text of metadata and rules; an export can nest it deeper."""
    parts: object = {name: value[name] for name in _CONTRACT if value.get(name)}
    if not parts:
        return None
    for _ in range(_LEVELS_ABOVE):
        parts = [parts]
    try:
        return json.dumps(parts, allow_nan=False)[_LEVELS_ABOVE:-_LEVELS_ABOVE]
    except (ValueError, RecursionError):
        raise SchemaError("metadata and rules are no JSON, or are nested too deep") from None


def _references(found: object) -> Iterator[SchemaReference]:
    if not isinstance(found, list):
        raise SchemaError("references is not a list")
    for one in found:
        if not isinstance(one, dict):
            raise SchemaError("a reference is not an object")
        version = _number(one, "version", -1, _LARGEST_INT32)
        yield SchemaReference(_text(one, "name"), _text(one, "subject"), version)


def _text(value: Mapping[str, object], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise SchemaError(f"{name} is not a text")
    return found


def _number(value: Mapping[str, object], name: str, least: int, most: int) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise SchemaError(f"{name} is not an integer from {least} to {most}")
    return found


# ---- the state -------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Registry:
    """
    The content of a schema registry; result of `open_registry`.

    Attributes
    ----------
    place : str
        What was read.
    compatibility, modes : dict
        The settings by subject, by context (``:.staging:``), and of the registry (None).
    problems : Problems
        What was not read, and what makes the state inexact.
    """

    place: str
    _versions: dict[str, dict[int, SubjectVersion]] = field(default_factory=dict)
    compatibility: dict[str | None, str] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)

    def __post_init__(self) -> None:
        self._versions = {
            subject: dict(sorted(found.items()))
            for subject, found in sorted(self._versions.items())
            if found
        }
        self._ids: dict[tuple[str, int], RegisteredSchema] = {}
        self._guids: dict[str, RegisteredSchema] = {}
        self._users: defaultdict[RegisteredSchema, list[SubjectVersion]] = defaultdict(list)
        for one in self:
            schema = one.schema
            if schema.id != NO_ID:
                schema = self._ids.setdefault((schema.context, schema.id), schema)
            if one.schema.guid is not None:  # only later records may have it
                self._guids.setdefault(one.schema.guid, schema)
            self._users[schema].append(one)

    def __reduce__(self) -> tuple[Callable[[bytes], Registry], tuple[bytes]]:
        """Return how to copy the registry: every task of a job gets it, and texts resemble."""
        state = (self.place, self._versions, self.compatibility, self.modes, self.problems)
        return _unpacked, (zlib.compress(pickle.dumps(state), 1),)

    def __iter__(self) -> Iterator[SubjectVersion]:
        """Yield all versions, by subject and version."""
        for found in self._versions.values():
            yield from found.values()

    def __len__(self) -> int:
        """Return the number of versions."""
        return sum(map(len, self._versions.values()))

    @property
    def subjects(self) -> list[str]:
        """The subjects that have a version, also those of which all versions are deleted."""
        return list(self._versions)

    @property
    def schemas(self) -> list[RegisteredSchema]:
        """The distinct schemas."""
        return list(self._users)

    @property
    def guids(self) -> dict[str, RegisteredSchema]:
        """The schemas by GUID."""
        return dict(self._guids)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not any(one.rows_missing for one in self.problems)

    def schema(self, id: int, *, context: str = "") -> RegisteredSchema | None:  # noqa: A002
        """Return the schema with an id, also a deleted one; None if there is none."""
        return self._ids.get(("" if context in DEFAULT_CONTEXTS else context, id))

    def schema_of_guid(self, guid: str) -> RegisteredSchema | None:
        """Return the schema with a GUID, also a deleted one; None if there is none."""
        return self._guids.get(guid.lower())

    def versions(self, subject: str) -> list[SubjectVersion]:
        """Return the versions of a subject in order, also deleted ones."""
        return list(self._versions.get(subject, {}).values())

    def newest(self, subject: str) -> RegisteredSchema | None:
        """Return the schema of the newest version that is not deleted; None without one."""
        found = reversed(self._versions.get(subject, {}).values())
        return next((one.schema for one in found if not one.is_deleted), None)

    def version(self, subject: str, version: int) -> SubjectVersion | None:
        """Return a version of a subject, also a deleted one; None if there is none."""
        return self._versions.get(subject, {}).get(version)

    def users_of(self, schema: RegisteredSchema) -> list[SubjectVersion]:
        """Return the versions that have a schema."""
        return list(self._users.get(schema, ()))

    def compatibility_of(self, subject: str) -> str | None:
        """Return the compatibility level of a subject, or else of its context."""
        return _setting(self.compatibility, subject)

    def mode_of(self, subject: str) -> str | None:
        """Return the mode of a subject, or else of its context."""
        return _setting(self.modes, subject)

    def referenced(self, schema: RegisteredSchema) -> dict[str, RegisteredSchema]:
        """
        Return the schemas that a schema refers to, directly and indirectly, by their names.

        A schema comes after those that it refers to. Of two with one name, the first is kept, as
        a registry does. The subject of a reference is one of the schema's own context, if that
        has it.

        Raises
        ------
        SchemaError
            If one does not exist, refers to itself, or if they are too many.
        """
        found: dict[str, RegisteredSchema] = {}
        path = [(schema, iter(schema.references), "")]
        open_keys = {_key_of(schema)}
        while path:
            one, left, name = path[-1]
            reference = next(left, None)
            if reference is None:
                path.pop()
                open_keys.discard(_key_of(one))
                if path:
                    found.setdefault(name, one)
                continue
            if reference.name in found:
                continue
            version = None if reference.version == -1 else reference.version
            target = self._schema_of(self.subject_of(one, reference), version)
            if target is None:
                raise SchemaError(
                    f"{reference.name!r} is version {reference.version} of {reference.subject!r},"
                    " which does not exist"
                )
            if _key_of(target) in open_keys:
                raise SchemaError(f"{reference.subject!r} refers to itself")
            if len(found) + len(path) > MAX_REFERENCED:
                raise SchemaError(f"more than {MAX_REFERENCED} schemas are referred to")
            open_keys.add(_key_of(target))
            path.append((target, iter(target.references), reference.name))
        return found

    def subject_of(self, schema: RegisteredSchema, reference: SchemaReference) -> str:
        """Return the subject of a reference: in the schema's own context, if that has it."""
        qualified = f":{schema.context}:{reference.subject}"
        is_own = schema.context != "" and qualified in self._versions
        return qualified if is_own else reference.subject

    def reader(
        self, subject: str, version: int | None = None, *, message: str = ""
    ) -> ReaderSchema:
        """
        Return one schema, to read keys or values into its columns.

        Parameters
        ----------
        subject : str
        version : int, optional
            By default the newest one that is not deleted.
        message : str, default ""
            Full name of a Protobuf message, of a schema with several.

        Raises
        ------
        SchemaError
            If there is no such version.
        """
        from kafkascan.schemas.values import ReaderSchema

        schema = self._schema_of(subject, version)
        if schema is None:
            hint = suggestion(subject, self.subjects) if version is None else ""
            which = "version" if version is None else f"version {version}"
            raise SchemaError(f"there is no {which} of the subject {subject!r}{hint}")
        return ReaderSchema(self, schema, message)

    def _schema_of(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return the schema of a version, or of the newest one; None if there is none."""
        if version is None:
            return self.newest(subject)
        found = self.version(subject, version)
        return None if found is None else found.schema

    def reader_named(self, name: str, *, message: str = "") -> ReaderSchema:
        """Return one schema by ``SUBJECT`` or ``SUBJECT:VERSION``; see `reader`."""
        subject, _, version = name.rpartition(":")
        if subject in self._versions and version.isdecimal() and len(version) < 10:
            return self.reader(subject, int(version), message=message)
        return self.reader(name, message=message)

    def decoder(self, place: ItemPlace) -> ValueDecoder:
        """Return the decoder of the keys or values of a topic, for `read_records`."""
        from kafkascan.schemas.values import ValueDecoder

        return ValueDecoder(self, place)

    def to_table(self) -> Table:
        """Return a row per version; `REGISTRY_SCHEMA` has the columns."""
        rows = (
            {
                "subject": one.subject,
                "version": one.version,
                "id": None if one.schema.id == NO_ID else one.schema.id,
                "schema_type": one.schema.schema_type,
                "is_deleted": one.is_deleted,
                "compatibility": self.compatibility_of(one.subject),
                "mode": self.mode_of(one.subject),
                "guid": one.schema.guid,
                "references": [
                    {
                        "name": with_escaped_bytes(to.name),
                        "subject": with_escaped_bytes(to.subject),
                        "version": to.version,
                    }
                    for to in one.schema.references
                ],
                "offset": one.offset,
                "timestamp": one.timestamp,
                "schema": one.schema.text,
            }
            for one in self
        )
        return Table.of_rows(REGISTRY_SCHEMA, rows, self.problems)

    def __repr__(self) -> str:
        counts = f"{len(self):,} versions of {len(self._versions):,} subjects"
        first = f"<Registry {self.place}: {counts}, {len(self._users):,} schemas>"
        return "\n".join([first, *problem_lines(self.problems)])


def _unpacked(packed: bytes) -> Registry:
    return Registry(*pickle.loads(zlib.decompress(packed)))


def _key_of(schema: RegisteredSchema) -> tuple[str, int, str | None]:
    return schema.context, schema.id, schema.guid


def _setting(settings: Mapping[str | None, str], subject: str) -> str | None:
    context = context_of(subject)
    keys = (subject, f":{context}:" if context else None)
    return next((settings[key] for key in keys if key in settings), None)


class RegistryBuilder:
    """
    Applies changes in their order, as a registry does when it loads its topic.

    Each change takes amortized constant or logarithmic time, whatever the changes before it are.

    Parameters
    ----------
    place : str
    topic, partition : str and int, optional
        Of the log.
    """

    def __init__(
        self, place: str, *, topic: str | None = None, partition: int | None = None
    ) -> None:
        self.compatibility: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self._place, self._topic, self._partition = place, topic, partition
        self._problems: list[Problem] = []
        self._unlisted = 0
        self._size = 0
        self._versions: defaultdict[str, dict[int, SubjectVersion]] = defaultdict(dict)
        self._schemas: dict[tuple[str, int], RegisteredSchema] = {}
        self._uses: defaultdict[tuple[str, int], int] = defaultdict(int)
        # Versions by subject: a heap of those that were not deleted when they were added, and by
        # context the deleted ones.
        self._alive: defaultdict[str, list[int]] = defaultdict(list)
        self._deleted: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(
            lambda: defaultdict(set)
        )

    def add_problem(self, symbol: str, message: str, severity: Severity = Severity.ERROR) -> None:
        """Add a problem; beyond a limit, they are only counted. Rows are missing for errors."""
        if len(self._problems) >= _MAX_PROBLEMS:
            self._unlisted += 1
            return
        is_missing = severity == Severity.ERROR
        self._problems.append(Problem(
            symbol, message, self._place, severity, None, self._topic, self._partition, is_missing
        ))  # fmt: skip

    def put(self, one: SubjectVersion, size: int) -> None:
        """
        Register, replace or soft-delete a version; a duplicate id is refused.

        Parameters
        ----------
        one : SubjectVersion
        size : int
            Bytes of the record or file that it comes from.
        """
        schema = one.schema
        key = (schema.context, schema.id)
        known = self._schemas.get(key)
        self._size += size
        if self._size > MAX_TOTAL_SIZE:
            text = f"version {one.version} of {one.subject!r}: the schemas take more than 1 GiB"
            self.add_problem(BAD_SCHEMA, text)
            return
        if known is not None:
            if known.text != schema.text:
                text = (
                    f"version {one.version} of {one.subject!r} is ignored, as in a registry:"
                    f" schema id {schema.id} has another text already"
                )
                self.add_problem(DUPLICATE_SCHEMA_ID, text, Severity.WARNING)
                return
            # One copy of a text.
            shared = replace(schema, text=known.text)
            one = replace(one, schema=known if shared == known else shared)
        if schema.id != NO_ID:
            self._uses[key] += 1
            self._schemas.setdefault(key, schema)
        self.remove(one.subject, one.version)
        self._versions[one.subject][one.version] = one
        if one.is_deleted:
            self._deleted[schema.context][one.subject].add(one.version)
        else:
            heapq.heappush(self._alive[one.subject], one.version)

    def remove(self, subject: str, version: int) -> None:
        """Remove a version for good, and its id if no other version has it."""
        found = self._versions.get(subject, {}).pop(version, None)
        if found is None:
            return
        key = (found.schema.context, found.schema.id)
        self._deleted[key[0]][subject].discard(version)
        if found.schema.id != NO_ID:
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key], self._schemas[key]

    def delete_subject(self, subject: str, last: int) -> None:
        """Soft-delete the versions of a subject up to one."""
        alive, versions = self._alive.get(subject, []), self._versions.get(subject, {})
        while alive and alive[0] <= last:
            one = versions.get(heapq.heappop(alive))
            if one is not None and not one.is_deleted:
                versions[one.version] = replace(one, is_deleted=True)
                self._deleted[one.schema.context][subject].add(one.version)

    def clear_subject(self, subject: str) -> None:
        """Remove the soft-deleted versions of a subject, or of a context (``:.staging:``)."""
        context = context_of(subject)
        deleted = self._deleted[context]
        is_context = subject in (f":{context}:", ":.:")
        for one in list(deleted) if is_context else [subject]:
            for version in deleted.pop(one, ()):
                self.remove(one, version)

    def build(self, problems: Problems) -> Registry:
        """Return the state, with more problems."""
        found = [*self._problems]
        if self._unlisted:
            text = f"and {self._unlisted:,} more problems"
            found.append(replace(found[-1], message=text))
        return Registry(
            self._place, self._versions, self.compatibility, self.modes, problems + found
        )
