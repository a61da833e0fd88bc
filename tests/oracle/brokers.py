"""Real single-node brokers on loopback: two of KRaft, and an old one with ZooKeeper."""

from __future__ import annotations

import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.oracle.build import ClassPaths
from tests.oracle.jvm import JavaProcess, java_command, wait_until
from tests.support.waiting import HANG_SECONDS

_HOST = "127.0.0.1"
_CLUSTER_ID = "a2Fma2FzY2FuLW9yYWNsZQ"
_LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"

_COMMON_CONFIG = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # The preallocated size of indexes; small, so that data directories are small.
    "log.index.size.max.bytes": "4096",
    # The scenarios' timestamps are years old: no deletion by time.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class Broker(ABC):
    """A broker with one data directory: can be restarted, ends with its `with` block."""

    version: str

    def __init__(
        self, directory: Path, class_paths: ClassPaths, config: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_file = directory / "broker.log"
        self.bootstrap_servers = f"{_HOST}:{_reserve_port()}"
        self._class_paths = class_paths
        self._config = dict(config or {})
        self._process: JavaProcess | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_all()

    def start(self) -> None:
        """Start the broker (again, on the same data directory) and wait until it serves clients."""
        self._process = self._launch(self._write_config())
        wait_until(f"broker {self.version} to serve", self._serves, seconds=HANG_SECONDS)

    @property
    def process_id(self) -> int:
        """The id of the running broker's process."""
        assert self._process is not None
        return self._process.process_id

    def stop(self) -> None:
        """Stop cleanly: segments are flushed, index files trimmed, snapshots written."""
        if self._process is not None:
            self._process.terminate()
            self._process = None

    def kill(self) -> None:
        """Kill the broker (SIGKILL), as in a crash; does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def _end_all(self) -> None:
        """End all processes."""
        self.kill()

    @abstractmethod
    def _launch(self, config_file: Path) -> JavaProcess:
        """Start the broker's process."""

    @abstractmethod
    def _own_config(self) -> dict[str, str]:
        """Return the configuration that this kind of broker needs in addition."""

    def _serves(self) -> bool:
        assert self._process is not None
        self._process.raise_if_dead()
        try:
            metadata = AdminClient(self._probe_config()).list_topics(timeout=1)
        except KafkaException:
            return False
        return bool(metadata.brokers)

    def _probe_config(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}

    def _write_config(self) -> Path:
        config = {
            **_COMMON_CONFIG,
            "log.dirs": str(self.data_dir),
            **self._own_config(),
            **self._config,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        return path


class KafkaBroker(Broker):
    """The current Kafka: controller and broker in one process."""

    version = "4.4.0"

    def __init__(
        self, directory: Path, class_paths: ClassPaths, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, class_paths, config)
        self._class_path = class_paths.broker
        self._controller = f"{_HOST}:{_reserve_port()}"

    def _own_config(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{self._controller}",
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            # A metadata snapshot every few topics, and few no-op records.
            "metadata.log.max.record.bytes.between.snapshots": "2000",
            "metadata.max.idle.interval.ms": "5000",
        }

    def _launch(self, config_file: Path) -> JavaProcess:
        if not (self.data_dir / "meta.properties").exists():
            self._format(config_file)
        command = java_command(
            self._class_path,
            "kafka.Kafka",
            [str(config_file)],
            heap="512m",
            properties=self._logging(),
        )
        return JavaProcess(command, self.log_file)

    def _logging(self) -> dict[str, str]:
        return {"oracle.log.level": "INFO"}

    def _format(self, config_file: Path) -> None:
        arguments = ["format", "-t", _CLUSTER_ID, "-c", str(config_file)]
        command = java_command(self._class_path, "kafka.tools.StorageTool", arguments)
        subprocess.run(command, check=True, capture_output=True)


class TieredBroker(KafkaBroker):
    """The current Kafka with remote storage, and share groups with few updates per snapshot."""

    def _own_config(self) -> dict[str, str]:
        return {
            **super()._own_config(),
            **remote_storage(self.directory / "remote"),
            "log.initial.task.delay.ms": "500",
            "log.segment.delete.delay.ms": "100",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.snapshot.update.records.per.snapshot": "3",
        }


def remote_storage(folder: Path) -> dict[str, str]:
    """Return the configuration of a broker whose remote storage is a folder."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.storage.manager.class.name": _LOCAL_TIERED_STORAGE,
        "rsm.config.dir": str(folder),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
    }


class PreviousBroker(KafkaBroker):
    """An earlier Kafka of the current line."""

    version = "4.1.1"

    def __init__(
        self, directory: Path, class_paths: ClassPaths, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, class_paths, config)
        self._class_path = class_paths.previous


class OlderBroker(KafkaBroker):
    """The last Kafka before 4.0, without ZooKeeper."""

    version = "3.9.1"

    def __init__(
        self, directory: Path, class_paths: ClassPaths, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, class_paths, config)
        self._class_path = class_paths.older

    def _own_config(self) -> dict[str, str]:
        # The new protocol of groups is on by default from 4.0 on.
        return {
            **super()._own_config(),
            "group.coordinator.rebalance.protocols": "classic,consumer",
        }

    def _logging(self) -> dict[str, str]:
        return _log4j(self.directory)


class LegacyBroker(Broker):
    """The last Kafka line that writes message formats 0 and 1 to disk, with its ZooKeeper."""

    version = "2.8.2"

    def __init__(
        self, directory: Path, class_paths: ClassPaths, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, class_paths, config)
        self._zookeeper_port = _reserve_port()
        self._zookeeper: JavaProcess | None = None

    def _own_config(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "zookeeper.connect": f"{_HOST}:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": "30000",
        }

    def _launch(self, config_file: Path) -> JavaProcess:
        if self._zookeeper is None:
            self._zookeeper = self._launch_zookeeper()
        command = java_command(
            self._class_paths.legacy,
            "kafka.Kafka",
            [str(config_file)],
            heap="512m",
            properties=self._logging(),
        )
        return JavaProcess(command, self.log_file)

    def _launch_zookeeper(self) -> JavaProcess:
        arguments = [str(self._zookeeper_port), str(self.directory / "zookeeper")]
        properties = {"zookeeper.admin.enableServer": "false", **self._logging()}
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = java_command(self._class_paths.legacy, main, arguments, properties=properties)
        return JavaProcess(command, self.directory / "zookeeper.log")

    def _logging(self) -> dict[str, str]:
        return _log4j(self.directory)

    def _end_all(self) -> None:
        super()._end_all()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None


def _log4j(directory: Path) -> dict[str, str]:
    """Write a configuration for log4j 1.x: the jars contain none."""
    path = directory / "log4j.properties"
    path.write_text(
        "log4j.rootLogger=INFO, console\n"
        "log4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.console.layout.ConversionPattern=%d %p %m (%c)%n\n"
    )
    return {"log4j.configuration": path.as_uri()}


_reserved: list[socket.socket] = []


def _reserve_port() -> int:
    """
    Return a port that nobody else gets before the broker takes it, nor while it restarts.

    The system gives a port that is bound to no other process, but a JVM may listen on it: it
    permits the reuse of addresses, as this socket does.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((_HOST, 0))
    _reserved.append(holder)
    port: int = holder.getsockname()[1]
    return port
