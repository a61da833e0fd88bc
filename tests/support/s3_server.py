"""A local S3 server, whose bucket contains the files of folders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

_KEYS = {"aws_access_key_id": "some-key-id", "aws_secret_access_key": "some-secret"}


@dataclass(frozen=True)
class S3Server:
    """
    A running server, and a bucket.

    Attributes
    ----------
    endpoint : str
    bucket : str
    client : boto3 client
    requests : list of str
        The method and path of each request so far.
    """

    endpoint: str
    bucket: str
    client: Any
    requests: list[str]

    def count_requests(self) -> Callable[[], int]:
        """Return a function that returns the number of requests since now."""
        before = len(self.requests)
        return lambda: len(self.requests) - before

    @property
    def options(self) -> dict[str, object]:
        """The `storage_options` of the server."""
        return {
            **_KEYS,
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "client_options": {"allow_http": True},
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables from which the libraries take the same."""
        return {
            **{name.upper(): value for name, value in _KEYS.items()},
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_folder(self, folder: Path, key: str) -> str:
        """Store the files below a folder; return the URL of the prefix."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())
        return f"s3://{self.bucket}/{key}"


@contextmanager
def s3_server(bucket: str) -> Iterator[S3Server]:
    """
    Run a server.

    Parameters
    ----------
    bucket : str
        A new one: the servers of one process share their content.
    """
    app = pytest.importorskip("moto.server").DomainDispatcherApplication
    backends = pytest.importorskip("moto.server").create_backend_app
    boto3 = pytest.importorskip("boto3")
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = app(backends)
    requests: list[str] = []

    def noted(environ: dict[str, Any], start_response: Any) -> Any:
        requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, noted, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **_KEYS)
        client.create_bucket(Bucket=bucket)
        yield S3Server(endpoint, bucket, client, requests)
    finally:
        server.shutdown()
        thread.join()
