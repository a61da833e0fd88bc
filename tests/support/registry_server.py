"""A schema registry in memory that answers the clients of Confluent's and of Apicurio's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

APICURIO = "/apis/registry/v3"
"""Where Apicurio's API is; that of Confluent is at the root."""
_FIRST_GLOBAL_ID = 1_000
_ID = "/ids/(content|global)Ids/([0-9]+)(/references)?"
_VERSION = "/groups/[^/]+/artifacts/([^/]+)/versions/([^/]+)(/content|/references)?"


@dataclass(frozen=True)
class Version:
    """A version of a subject, which is an artifact for Apicurio."""

    subject: str
    version: int
    id: int
    """Of the content, which other versions can have, too."""
    global_id: int
    """Of this version: it is no other's, and none of the content ids."""
    schema_type: str
    text: str
    references: Sequence[Mapping[str, Any]]

    def as_row(self) -> dict[str, Any]:
        """Return what Confluent's registry answers."""
        return {
            "subject": self.subject, "version": self.version, "id": self.id, "schema": self.text,
            "schemaType": self.schema_type, "references": list(self.references),
        }  # fmt: skip

    def as_metadata(self) -> dict[str, Any]:
        """Return what Apicurio's registry answers."""
        return {
            "groupId": "default", "artifactId": self.subject, "version": str(self.version),
            "globalId": self.global_id, "contentId": self.id, "artifactType": self.schema_type,
        }  # fmt: skip


@dataclass
class RegistryServer:
    """What is registered, by requests and by `register`."""

    lists_schemas: bool
    url: str = ""
    versions: list[Version] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def register(
        self,
        subject: str,
        schema_type: str,
        text: str,
        references: Sequence[Mapping[str, Any]] = (),
    ) -> Version:
        """Return the version of a subject that has a schema, and add it if there is none."""
        content = (schema_type, text, list(references))
        with self._lock:
            same = [
                one
                for one in self.versions
                if (one.schema_type, one.text, one.references) == content
            ]
            for one in same:
                if one.subject == subject:
                    return one
            version = 1 + len(self.of(subject))
            number = same[0].id if same else 1 + max((one.id for one in self.versions), default=0)
            global_id = _FIRST_GLOBAL_ID + len(self.versions)
            self.versions.append(Version(subject, version, number, global_id, *content))
            return self.versions[-1]

    def of(self, subject: str) -> list[Version]:
        """Return the versions of a subject."""
        return [one for one in self.versions if one.subject == subject]

    def answer(self, method: str, url: str, body: Any) -> object:
        """Return the answer to a request: something to send as JSON, bytes, or None for 404."""
        parts = urlsplit(url)
        if parts.path.startswith(APICURIO):
            return self._apicurio(method, parts.path.removeprefix(APICURIO), body)
        return self._confluent(method, parts.path, parse_qs(parts.query), body)

    def _confluent(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> object:
        if path == "/subjects":
            return sorted({one.subject for one in self.versions})
        if path == "/schemas" and self.lists_schemas:
            first, limit = int(query.get("offset", "0")[0]), int(query["limit"][0])
            return [one.as_row() for one in self.versions[first : first + limit]]
        if path.startswith("/config/"):
            return body  # of a PUT
        if found := re.fullmatch("/schemas/ids/([0-9]+)", path):
            return _first(one.as_row() for one in self.versions if one.id == int(found[1]))
        if found := re.fullmatch("/subjects/([^/]+)/versions(?:/([^/]+))?", path):
            subject = unquote(found[1])
            if found[2]:
                return _first(one.as_row() for one in self._at(subject, found[2]))
            if method == "GET":
                return [one.version for one in self.of(subject)] or None
            schema_type = body.get("schemaType") or "AVRO"
            references = body.get("references") or []
            return {"id": self.register(subject, schema_type, body["schema"], references).id}
        return None

    def _apicurio(self, method: str, path: str, body: Any) -> object:
        if method == "POST" and re.fullmatch("/groups/[^/]+/artifacts", path):
            content = body["firstVersion"]["content"]
            references = [
                {"name": one["name"], "subject": one["artifactId"], "version": int(one["version"])}
                for one in content.get("references") or []
            ]
            version = self.register(
                body["artifactId"], body["artifactType"], content["content"], references
            )
            return {"artifact": version.as_metadata(), "version": version.as_metadata()}
        if path.endswith("/references"):
            return []
        if found := re.fullmatch(_ID, path):
            name = "id" if found[1] == "content" else "global_id"
            return _first(
                one.text.encode() for one in self.versions if getattr(one, name) == int(found[2])
            )
        if found := re.fullmatch(_VERSION, path):
            at = self._at(unquote(found[1]), unquote(found[2]))
            return _first(one.text.encode() if found[3] else one.as_metadata() for one in at)
        return None

    def _at(self, subject: str, version: str) -> list[Version]:
        found = self.of(subject)
        is_newest = version in ("latest", "branch=latest")
        return found[-1:] if is_newest else [one for one in found if str(one.version) == version]


def _first(found: Iterator[object]) -> object:
    return next(found, None)


@contextmanager
def registry_server(*, lists_schemas: bool = True) -> Iterator[RegistryServer]:
    """
    Serve an empty registry on loopback; ids are counted from 1.

    Parameters
    ----------
    lists_schemas : bool
        Whether it answers ``GET /schemas``, which some registries do not.
    """
    registry = RegistryServer(lists_schemas)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = registry.answer(self.command, self.path, json.loads(raw) if raw else None)
            is_there = found is not None
            found = found if is_there else {"error_code": 40401}
            sent = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(200 if is_there else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
