"""A session that commands find in place of one of their own: a JVM takes seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Builder:
    """Stands in for ``SparkSession.builder``; records its calls."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.conf: dict[str, str] = {}

    def appName(self, name: str) -> Builder:  # noqa: N802 - Spark's name
        return self.config("spark.app.name", name)

    def master(self, url: str) -> Builder:
        return self.config("spark.master", url)

    def remote(self, url: str) -> Builder:
        return self.config("spark.remote", url)

    def config(self, name: str, value: str) -> Builder:
        self.conf[name] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802 - Spark's name
        return self._session


class Session:
    """The shared session, protected from being stopped."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.is_stopped = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        self.is_stopped = True
