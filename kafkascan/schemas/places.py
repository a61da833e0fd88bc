"""Open a schema registry: its topic, a folder of schema files, a dump, or a running one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from kafkascan.format.errors import KafkaScanError
from kafkascan.format.shown_places import shown_url
from kafkascan.io.stores.stored_objects import is_web_url
from kafkascan.io.stores.urls import ObjectUrl, Place, path_or_url
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.opened_logs import live_logs
from kafkascan.logs.topic_records import AsOf, open_topic
from kafkascan.schemas.registry import (
    BAD_SCHEMA,
    NO_ID,
    Registry,
    RegistryBuilder,
    SchemaError,
    SubjectVersion,
    version_of,
)
from kafkascan.schemas.registry_log import MAX_RECORD_SIZE, replay_registry
from kafkascan.schemas.registry_schemas import SCHEMAS_TOPIC
from kafkascan.tables.table import NO_PROBLEMS

DUMP_NAME = "registry.json"
"""File of an exported folder with everything that the registry knows."""

TYPES_BY_EXTENSION = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}

_MAX_ANSWER = 128 << 20
_MAX_REQUESTS = 100_000
_PAGE = 1_000
_TIMEOUT_S = 30
_DEADLINE_S = 600
_CHUNK = 1 << 16
_NOT_THERE = (404, 405, 501)

_FILE_NAME = re.compile(
    r"(?:(?P<subject>.+)-v(?P<version>[1-9][0-9]{0,9})\.id)?(?P<id>[0-9]{1,19})"
    r"|(?P<guid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


class RegistryError(KafkaScanError, ValueError):
    """
    A schema registry, or a copy of one, cannot be read.

    Attributes
    ----------
    path : str
    reason : str
    symbol : str
    """

    def __init__(self, path: str, reason: str, symbol: str = "NO_REGISTRY") -> None:
        super().__init__(path, reason, symbol)
        self.path, self.reason, self.symbol = path, reason, symbol

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [{self.symbol}]"


def open_registry(
    place: Place | LogDir,
    /,
    *,
    as_of: AsOf | None = None,
    topic: str = SCHEMAS_TOPIC,
    storage_options: Mapping[str, object] | None = None,
) -> Registry:
    """
    Return the content of a schema registry.

    Parameters
    ----------
    place : path, URL or LogDir
        One of:

        - a broker's data dir, the folder of a partition, or a tar of them: the topic is replayed
          as a registry does when it starts;
        - a folder of ``.avsc``, ``.proto`` and ``.json`` files: `export_schemas` has written it,
          or the names are ids (``17.avsc``), GUIDs, or ``orders-value-v3.id17.avsc``;
        - a ``.json`` file: the answer of a registry to ``GET /schemas``;
        - an ``http`` or ``https`` URL: a running registry, which is asked for all versions, or
          the URL of such a ``.json`` file. A user and password in the URL are sent to it.
    as_of : int, mapping, str, datetime or numpy.datetime64, optional
        As in `read_groups`: the state before an offset or after a time. For a topic only.
    topic : str, default ``_schemas``
        Name of the registry's topic in a data dir.
    storage_options : mapping, optional
        Options of the store, for a URL of a data dir; see `ObjectUrl`.

    Returns
    -------
    Registry

    Raises
    ------
    NoLogsError
        If there is no partition of the topic.
    RegistryError
        If the registry does not answer, or if a dump is no JSON.
    ValueError
        If `as_of` is after the end of the log, no time, or not for a topic.
    As `open_log_dir`.
    """
    if isinstance(place, LogDir):
        return _of_log(place, topic, as_of)
    found = path_or_url(place, storage_options)
    read = _reader_of(found)
    if read is None:
        return _of_log(open_log_dir(found), topic, as_of)
    if as_of is not None:
        raise ValueError("as_of is for the log of a registry's topic")
    return read


def _reader_of(place: Path | ObjectUrl) -> Registry | None:
    """Return the registry of a place that is not a log; None for any other one."""
    if isinstance(place, ObjectUrl):
        return _of_url(place.url) if is_web_url(place.url) else None
    if place.is_dir():
        if (place / DUMP_NAME).is_file():
            return _of_file(place / DUMP_NAME)
        files = [one for one in sorted(place.iterdir()) if one.suffix in TYPES_BY_EXTENSION]
        return _of_files(place, files) if files else None
    return _of_file(place) if place.suffix == ".json" and place.is_file() else None


# ---- logs ------------------------------------------------------------------------------------


def _of_log(log_dir: LogDir, topic: str, as_of: AsOf | None) -> Registry:
    logs = live_logs(log_dir) if log_dir.is_partition else open_topic(log_dir, topic)[1]
    if len(logs) != 1:
        reason = f"{len(logs)} partitions of {topic}: a registry has one"
        raise RegistryError(str(log_dir.path), reason)
    return replay_registry(logs[0], as_of)


# ---- files -----------------------------------------------------------------------------------


def _of_file(path: Path) -> Registry:
    with path.open("rb") as file:
        raw = file.read(_MAX_ANSWER + 1)
    return _of_document(str(path), _parsed(str(path), raw))


def _parsed(place: str, raw: bytes) -> object:
    if len(raw) > _MAX_ANSWER:
        raise RegistryError(place, f"it has more than {_MAX_ANSWER >> 20} MiB")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RegistryError(place, f"it is no JSON: {type(error).__name__}") from None


def _of_document(place: str, found: object) -> Registry:
    """Return the registry of a list of versions, or of what `export_schemas` writes."""
    document = {"schemas": found} if isinstance(found, list) else found
    rows = document.get("schemas") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(rows, list):
        raise RegistryError(place, "it is no list of schemas")
    builder = RegistryBuilder(place)
    _put_rows(builder, rows)
    for name, settings in (("config", builder.compatibility), ("mode", builder.modes)):
        if isinstance(stored := document.get(name), dict):
            settings |= {key or None: one for key, one in stored.items() if isinstance(one, str)}
    return builder.build(NO_PROBLEMS)


def _put_rows(builder: RegistryBuilder, rows: Iterable[object]) -> None:
    for number, row in enumerate(rows):
        _put(builder, f"schema {number}", partial(version_of, row))


def _put(builder: RegistryBuilder, name: str, read: Callable[[], SubjectVersion]) -> None:
    try:
        one = read()
    except (SchemaError, OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        builder.add_problem(BAD_SCHEMA, f"{name} is left out: {reason}")
    else:
        builder.put(one, one.schema.text.__sizeof__())


def _of_files(folder: Path, files: list[Path]) -> Registry:
    builder = RegistryBuilder(str(folder))
    for path in files:
        _put(builder, path.name, partial(_version_of_file, path))
    return builder.build(NO_PROBLEMS)


def _version_of_file(path: Path) -> SubjectVersion:
    name = _FILE_NAME.fullmatch(path.stem)
    if name is None:
        raise SchemaError("its name has no id")
    if not path.is_file():
        raise SchemaError("it is no regular file")
    with path.open("rb") as file:
        raw = file.read(MAX_RECORD_SIZE + 1)
    if len(raw) > MAX_RECORD_SIZE:
        raise SchemaError("it has more than 8 MiB")
    return version_of({
        "subject": unquote(name["subject"] or path.stem, errors="surrogatepass"),
        "version": int(name["version"] or 1),
        "id": int(name["id"] or NO_ID),
        "guid": name["guid"],
        "schemaType": TYPES_BY_EXTENSION[path.suffix],
        "schema": raw.decode("utf-8-sig"),
    })  # fmt: skip


# ---- running registries ----------------------------------------------------------------------


def _of_url(url: str) -> Registry:
    client = _RegistryClient(url)
    if urlsplit(url).path.endswith(".json"):
        return _of_document(client.shown, client.get(""))
    builder = RegistryBuilder(client.shown)
    _put_rows(builder, _listed(client))
    return builder.build(NO_PROBLEMS)


def _listed(client: _RegistryClient) -> Iterator[object]:
    """Yield all versions; some registries have no request for that."""
    if client.get("/schemas", limit=1) is None:
        yield from _listed_by_subject(client)
        return
    alive = {_key(row) for row in _pages(client, deleted="false")}
    for row in _pages(client, deleted="true"):
        yield {"deleted": _key(row) not in alive, **row} if isinstance(row, dict) else row


def _pages(client: _RegistryClient, **query: object) -> Iterator[object]:
    """Yield the rows of all pages: a registry limits them, or returns everything each time."""
    seen: set[tuple[object, object]] = set()
    offset = 0
    while True:
        page = _list(client, client.get("/schemas", **query, offset=offset, limit=_PAGE))
        fresh = [row for row in page if _key(row) not in seen]
        yield from fresh
        seen.update(map(_key, fresh))
        offset += len(page)
        if not fresh:
            return


def _listed_by_subject(client: _RegistryClient) -> Iterator[object]:
    for subject in _list(client, client.get("/subjects", deleted="true")):
        path = f"/subjects/{quote(str(subject), safe='')}/versions"
        alive = _list(client, client.get(path) or [])
        for version in _list(client, client.get(path, deleted="true") or []):
            row = client.get(f"{path}/{version}", deleted="true")
            known = row if isinstance(row, dict) else {}
            yield {**known, "deleted": version not in alive}


def _key(row: object) -> tuple[object, object]:
    found = row if isinstance(row, dict) else {}
    return str(found.get("subject")), str(found.get("version"))


def _list(client: _RegistryClient, found: object) -> list[object]:
    if not isinstance(found, list):
        raise RegistryError(client.shown, "it does not answer as a schema registry")
    return found


class _RegistryClient:
    """Asks a registry; the size, the time and the number of answers are limited."""

    def __init__(self, url: str) -> None:
        from base64 import b64encode
        from urllib.request import HTTPRedirectHandler, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """Refuses to send a password to another server."""

            def redirect_request(self, *_: object) -> None:
                return None

        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._query = parts.query
        self.shown = shown_url(url)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
        self._opener = build_opener(NoRedirects)
        self._requests = 0
        self._deadline = time.monotonic() + _DEADLINE_S

    def get(self, path: str, **query: object) -> object:
        """Return a parsed answer; None if the registry does not have it."""
        from http.client import HTTPException, InvalidURL
        from urllib.error import HTTPError
        from urllib.request import Request

        self._requests += 1
        if self._requests > _MAX_REQUESTS:
            raise RegistryError(self.shown, f"more than {_MAX_REQUESTS:,} requests")
        asked = "&".join(one for one in (self._query, urlencode(query)) if one)
        request = Request(f"{self._base}{path}?{asked}".rstrip("?"), headers=self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as found:
                return _parsed(f"{self.shown}{path}", self._body(found))
        except HTTPError as error:
            error.close()
            if error.code in _NOT_THERE and path:
                return None
            raise RegistryError(self.shown, f"the server answers {error.code}") from None
        except InvalidURL:  # its text has parts of the URL, which may be those of a password
            raise RegistryError(self.shown, "the URL is not valid") from None
        except (OSError, HTTPException, UnicodeError) as error:
            reason = getattr(error, "reason", None) or error
            raise RegistryError(self.shown, f"no answer: {reason}") from None

    def _body(self, answer: IO[bytes]) -> bytes:
        found = bytearray()
        while chunk := answer.read(_CHUNK):
            found += chunk
            if len(found) > _MAX_ANSWER:
                break
            if time.monotonic() > self._deadline:
                raise RegistryError(self.shown, f"it takes more than {_DEADLINE_S} s")
        return bytes(found)
