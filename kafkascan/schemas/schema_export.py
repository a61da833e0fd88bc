"""Export a registry's content: schema files, a dump, and requests that restore a registry."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.staged_folders import stage_folder
from kafkascan.schemas.places import DUMP_NAME, TYPES_BY_EXTENSION
from kafkascan.schemas.registry import NO_ID, Registry, SubjectVersion, context_of
from kafkascan.schemas.registry_schemas import EXPORT_SCHEMA
from kafkascan.tables.table import Table

REQUESTS_NAME = "import.jsonl"
"""File of an exported folder with the requests that restore a registry, one a line, in order."""

_EXTENSIONS = {kind: extension for extension, kind in TYPES_BY_EXTENSION.items()}
# Most file systems limit a name to 255 bytes.
_LONGEST_SUBJECT = 180


def export_schemas(registry: Registry, folder: str | Path, /) -> Table:
    """
    Write the content of a registry into a new folder.

    The folder has a file for the text of each version (``orders-value-v3.id17.avsc``; characters
    of a subject that file names do not have are percent-encoded), the dump ``registry.json``,
    which `open_registry` reads, and ``import.jsonl``: a line for each request that restores the
    content in an empty registry, as objects with ``method``, ``path`` and ``body``. The requests
    set the mode IMPORT, register each version with its id after the ones it refers to, delete
    the versions that are soft-deleted, and set the compatibility and the modes.

    Parameters
    ----------
    registry : Registry
    folder : path
        Must not exist, or be empty. It appears when it is complete.

    Returns
    -------
    Table
        A row per version; `EXPORT_SCHEMA` has the columns.

    Raises
    ------
    OSError
    """
    names = list[str]()
    with stage_folder(Path(folder)) as staged:
        for one in registry:
            names.append(_file_name(one))
            _write(staged / names[-1], one.schema.text)
        _write(staged / DUMP_NAME, json.dumps(_dump_of(registry), indent=1) + "\n")
        lines = (json.dumps(one) + "\n" for one in import_requests(registry))
        _write(staged / REQUESTS_NAME, "".join(lines))
    found = {**registry.to_table().columns, "file": names}
    columns = {name: found[name] for name in EXPORT_SCHEMA.names}
    return Table(EXPORT_SCHEMA, columns, registry.problems)


def import_requests(registry: Registry) -> Iterator[dict[str, object]]:
    """
    Yield the requests that restore the content in an empty registry, in their order.

    Yields
    ------
    dict
        ``method``, ``path`` and ``body`` of Confluent's REST API.
    """
    versions = [one for one in _in_order(registry) if one.schema.id != NO_ID]
    contexts = sorted({context_of(one.subject) for one in versions} - {""})
    places = ["", *(f":{one}:" for one in contexts)]
    for place in places:
        yield _request("PUT", "mode", place, {"mode": "IMPORT"})
    for one in versions:
        yield _request("POST", "subjects", one.subject, _body_of(one), "/versions")
    for one in versions:
        if one.is_deleted:
            yield _request("DELETE", "subjects", one.subject, None, f"/versions/{one.version}")
    for subject, level in registry.compatibility.items():
        yield _request("PUT", "config", subject or "", {"compatibility": level})
    modes: dict[str | None, str] = {None: "READWRITE"}
    for subject, mode in (modes | registry.modes).items():
        yield _request("PUT", "mode", subject or "", {"mode": mode})
    for place in places[1:]:
        if place not in registry.modes:
            yield _request("DELETE", "mode", place, None)


def _request(
    method: str, what: str, subject: str, body: dict[str, object] | None, rest: str = ""
) -> dict[str, object]:
    path = f"/{what}/{quote(subject, safe='', errors='surrogatepass')}".rstrip("/")
    return {"method": method, "path": path + rest, "body": body}


def _body_of(one: SubjectVersion) -> dict[str, object]:
    """Return the body that registers a version, as `version_of` reads it."""
    schema = one.schema
    body: dict[str, object] = {"version": one.version, "id": schema.id}
    if schema.schema_type != "AVRO":
        body["schemaType"] = schema.schema_type
    if schema.references:
        body["references"] = list(map(asdict, schema.references))
    if one.contract is not None:
        body |= json.loads(one.contract)
    return body | {"schema": schema.text}


def _dump_of(registry: Registry) -> dict[str, object]:
    rows = [
        {"subject": one.subject, **_body_of(one), "guid": one.schema.guid,
         "deleted": one.is_deleted}
        for one in registry
    ]  # fmt: skip
    return {
        "schemas": rows,
        "config": {subject or "": one for subject, one in registry.compatibility.items()},
        "mode": {subject or "": one for subject, one in registry.modes.items()},
    }


def _in_order(registry: Registry) -> list[SubjectVersion]:
    """Return the versions by id, but after those that they refer to; a cycle is cut."""
    ordered: dict[SubjectVersion, None] = {}
    seen: set[tuple[str, int]] = set()
    by_id = sorted(registry, key=lambda one: (one.schema.id, one.subject, one.version))
    for first in by_id:
        waiting = [first]
        while waiting:
            one = waiting[-1]
            if (one.subject, one.version) not in seen:
                seen.add((one.subject, one.version))
                subjects = ((registry.subject_of(one.schema, to), to.version)
                            for to in reversed(one.schema.references))  # fmt: skip
                waiting += filter(None, itertools.starmap(registry.version, subjects))
                continue
            ordered.setdefault(waiting.pop())
    return list(ordered)


def _file_name(one: SubjectVersion) -> str:
    extension = _EXTENSIONS.get(one.schema.schema_type, ".txt")
    if one.schema.id == NO_ID:
        return f"{one.schema.guid}{extension}"
    subject = quote(one.subject, safe=" ", errors="surrogatepass")
    if len(subject) > _LONGEST_SUBJECT:
        digest = hashlib.sha256(subject.encode()).hexdigest()[:16]
        subject = f"{subject[:_LONGEST_SUBJECT]}~{digest}"
    return f"{subject}-v{one.version}.id{one.schema.id}{extension}"


def _write(path: Path, text: str) -> None:
    with AtomicFile(path) as file:
        # Half of a surrogate pair is written as it was in the JSON text of the record.
        file.stream.write(text.encode("utf-8", "backslashreplace"))
