"""
Record what brokers do to the files of a data dir: `python -m tests.oracle.recording [VERSION...]`.

Writes `tests/moving/recorded/`, which `tests.moving.recorded` replays. The broker waits some
milliseconds after each system call that changes a file (`strace`); meanwhile the file is read.
Entries of indexes are written to memory: the next reading of an index has them.
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.moving.recorded import BEGIN, RECORDED, Change, write_changes
from tests.oracle.brokers import Broker, KafkaBroker, OlderBroker
from tests.oracle.build import build
from tests.oracle.jvm import wait_until
from tests.oracle.live_tools import move_log

_BROKERS = (OlderBroker, KafkaBroker)
_TOPIC = "orders"
_TOPICS = (_TOPIC, "__consumer_offsets", "__transaction_state")
_FOLDERS = (*(f"{topic}-" for topic in _TOPICS), "__cluster_metadata-0")
# Sockets are written to, too.
_PAUSES = {"rename,unlink,ftruncate,mkdir,rmdir": 10_000, "write,pwrite64,writev": 1_500}
# Of an index that the metadata log preallocates with 10 MB, this much is recorded.
_MOST_BYTES = 4096
_MOST_ZEROS = 16
_CONFIG = {
    "log.index.size.max.bytes": "96",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.segment.delete.delay.ms": "200",
    "log.roll.ms": "2000",
    "metadata.log.segment.ms": "3000",
    "metadata.max.retention.ms": "5000",
}
_SMALL = {
    "segment.bytes": "1048576",
    "segment.ms": "700",
    "index.interval.bytes": "200",
    "file.delete.delay.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "1000",
}


_LINE = re.compile(r"(?:\[pid +\d+\] )?(\w+)\((.*)\) += \d+")
_QUOTED, _DESCRIPTOR = re.compile(r'"([^"]*)"'), re.compile(r"^\d+<([^>]*)>")


@dataclass
class Recorder:
    """
    Keeps what system calls did to a data dir.

    Attributes
    ----------
    data_dir : Path
    changes : list of Change
        From an empty data dir on.
    """

    data_dir: Path
    changes: list[Change] = field(default_factory=list)
    _folders: set[str] = field(default_factory=set)
    _contents: dict[str, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Note the files that exist."""
        for path in sorted(self.data_dir.rglob("*"), key=_order):
            name = self._name_of(str(path))
            if name and path.is_dir():
                self._make_folder(name)
            elif name:
                self._note_content(name)
        self.changes.append(BEGIN)

    def note(self, line: str) -> None:
        """Note what a system call did, by its line of strace."""
        self.note_indexes()
        parsed = _LINE.search(line)
        if parsed is None:
            return
        call, arguments = parsed.groups()
        places = _DESCRIPTOR.findall(arguments) or _QUOTED.findall(arguments)
        names = [self._name_of(place) for place in places[:2]]
        if call == "openat" and "O_CREAT" not in arguments and "O_TRUNC" not in arguments:
            return
        match call, names:
            case "rename", [str(old), str(new)]:
                self._rename(old, new)
            case "rename", [str(old), None]:  # to another data dir
                self._remove_folder(old)
            case "mkdir", [str(name), *_]:
                self._make_folder(name)
            case "unlink", [str(name), *_] if name in self._contents:
                self.changes.append(("remove", name))
                del self._contents[name]
            case "rmdir", [str(name), *_] if name in self._folders:
                self.changes.append(("rmdir", name))
                self._folders.remove(name)
            case _, [str(name), *_]:
                self._note_content(name)

    def note_indexes(self) -> None:
        """Note the entries of indexes that were written to memory."""
        for name in sorted(filter(_is_mapped, self._contents)):
            self._note_content(name)

    def _name_of(self, place: str) -> str | None:
        """Return the path below the data dir; None if it is not recorded."""
        if not place.startswith(f"{self.data_dir}/"):
            return None
        name = place.removeprefix(f"{self.data_dir}/")
        is_folder = "/" in name or name.startswith(_FOLDERS) or (self.data_dir / name).is_dir()
        if name == ".lock" or (is_folder and not name.startswith(_FOLDERS)):
            return None
        return name

    def _make_folder(self, name: str) -> None:
        if name not in self._folders:
            self._folders.add(name)
            self.changes.append(("mkdir", name))

    def _remove_folder(self, name: str) -> None:
        for path in [path for path in self._contents if path.startswith(f"{name}/")]:
            self.changes.append(("remove", path))
            del self._contents[path]

    def _rename(self, old: str, new: str) -> None:
        if old in self._folders:
            self._folders.remove(old)
            self._folders.add(new)
            self._contents = {
                f"{new}/{path.removeprefix(f'{old}/')}" if path.startswith(f"{old}/") else path: one
                for path, one in self._contents.items()
            }
        elif old in self._contents:
            self._contents[new] = self._contents.pop(old)
        else:
            return
        self.changes.append(("rename", old, new))

    def _note_content(self, name: str) -> None:
        try:
            with (self.data_dir / name).open("rb") as file:
                now = file.read(_MOST_BYTES if _is_mapped(name) else -1)
        except FileNotFoundError:  # renamed since
            return
        old = self._contents.get(name)
        if old == now:
            return
        if old is None:
            self.changes.append(("write", name, 0, b""))
        self.changes += [(kind, name, *rest) for kind, *rest in _difference(old or b"", now)]
        self._contents[name] = now


def _is_mapped(name: str) -> bool:
    return name.endswith((".index", ".timeindex"))


def _order(path: Path) -> tuple[bool, str, bool, str]:
    """Order folders, and then a log before its indexes."""
    return path.is_file(), str(path.parent / path.stem), path.suffix != ".log", path.suffix


def _difference(old: bytes, new: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield what makes new bytes of old ones: zeros at the end are a new size."""
    if len(new) < len(old):
        yield "truncate", len(new)
        old = old[: len(new)]
    pairs = enumerate(zip(old, new, strict=False))
    start = next((n for n, (one, other) in pairs if one != other), min(len(old), len(new)))
    end = start + len(new[start:].rstrip(b"\0"))
    if len(new) - end < _MOST_ZEROS:  # the end of a batch
        end = len(new)
    elif len(old) == len(new):
        while end > start and old[end - 1] == new[end - 1]:
            end -= 1
    if end > start:
        yield "write", start, new[start:end]
    if len(new) > max(len(old), end):
        yield "truncate", len(new)


@contextmanager
def recorded(broker: Broker) -> Iterator[list[Change]]:
    """Record what a broker does meanwhile."""
    recorder, ended = Recorder(broker.data_dir), threading.Event()
    strace = subprocess.Popen(
        ["strace", "-f", "-q", "-y", "-z", "-s", "0", "-p", str(broker.process_id),
         "-e", f"trace={','.join(_PAUSES)},openat",
         *(word for calls, microseconds in _PAUSES.items()
           for word in ("-e", f"inject={calls}:delay_exit={microseconds}"))],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert strace.stderr is not None
    output = strace.stderr.fileno()
    os.set_blocking(output, False)

    def work() -> None:
        rest = b""
        while not ended.is_set():
            select.select([output], [], [], 0.01)
            with suppress(BlockingIOError):
                rest += os.read(output, 1 << 16)
            *lines, rest = rest.split(b"\n")
            for line in lines:
                recorder.note(line.decode())
            recorder.note_indexes()

    time.sleep(1)  # until strace has attached
    recorder.begin()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield recorder.changes
    finally:
        ended.set()
        thread.join()
        os.set_blocking(output, True)
        strace.send_signal(signal.SIGINT)
        strace.communicate()


class Play:
    """Clients of a broker, and what they do."""

    def __init__(self, broker: Broker) -> None:
        self._servers = broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        self._dice = random.Random(7)
        self._plain = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        self._within = Producer(
            {"bootstrap.servers": self._servers, "transactional.id": "recorded"}
        )
        self._consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "readers"})

    def begin(self) -> None:
        """Create what is there before the recording."""
        self.create()
        self._within.init_transactions()
        self.write(2)
        self.commit_offset()

    def create(self) -> None:
        """Create the topic."""
        config = {**_SMALL, "cleanup.policy": "compact,delete"}
        (made,) = self.admin.create_topics([NewTopic(_TOPIC, 1, 1, config=config)]).values()
        made.result()

    def delete(self) -> None:
        """Delete the topic."""
        (gone,) = self.admin.delete_topics([_TOPIC]).values()
        gone.result()

    def alter(self, **config: str) -> None:
        """Change settings of the topic."""
        resource = ConfigResource(ResourceType.TOPIC, _TOPIC, set_config={
            **_SMALL, **{name.replace("_", "."): value for name, value in config.items()},
        })  # fmt: skip
        (done,) = self.admin.alter_configs([resource]).values()
        done.result()

    def write(self, rounds: int) -> None:
        """Write batches, in and outside of transactions."""
        for _ in range(rounds):
            self._produce(self._plain)
            self._plain.flush()
            self._within.begin_transaction()
            self._produce(self._within)
            self._within.flush()
            self._produce(self._plain)
            self._plain.flush()
            if self._dice.random() < 0.5:
                self._within.abort_transaction()
            else:
                self._within.commit_transaction()

    def delete_records(self, offset: int) -> None:
        """Raise the log start offset."""
        (done,) = self.admin.delete_records([TopicPartition(_TOPIC, 0, offset)]).values()
        done.result()

    def end_offset(self) -> int:
        """Return the end of the log."""
        high: int = self._consumer.get_watermark_offsets(TopicPartition(_TOPIC, 0), timeout=30)[1]
        return high

    def commit_offset(self) -> None:
        """Commit an offset of a group."""
        place = TopicPartition(_TOPIC, 0, self.end_offset())
        self._consumer.commit(offsets=[place], asynchronous=False)

    def _produce(self, producer: Producer) -> None:
        for _ in range(self._dice.randrange(1, 4)):
            value = b"v" * self._dice.randrange(60)
            producer.produce(_TOPIC, value, b"%d" % self._dice.randrange(12))


def play(clients: Play, broker: Broker, move: Callable[[Path], None]) -> None:
    """Let a broker append, roll, clean, delete and move the log of a topic."""
    for _ in range(6):  # the cleaner works
        clients.write(2)
        clients.commit_offset()
        time.sleep(0.8)
    clients.delete_records(clients.end_offset() - 6)
    clients.write(2)
    time.sleep(1.5)
    clients.alter(cleanup_policy="delete", retention_ms="2500")
    for _ in range(4):
        clients.write(2)
        clients.commit_offset()
        time.sleep(0.8)
    other = broker.directory / "data-2"
    for target in (other, broker.data_dir):
        move(target)
        clients.write(2)
    time.sleep(1)
    clients.delete()
    time.sleep(1)
    clients.create()
    time.sleep(0.5)
    clients.write(3)
    time.sleep(1)


def record(broker_class: type[KafkaBroker], directory: Path) -> list[Change]:
    """Run a broker, and return what it did to its first data dir."""
    class_paths = build()
    log_dirs = f"{directory / 'data'},{directory / 'data-2'}"
    with broker_class(directory, class_paths, {**_CONFIG, "log.dirs": log_dirs}) as broker:

        def move(target: Path, topic: str = _TOPIC) -> None:
            move_log(class_paths, broker.bootstrap_servers, (topic, 0), target)
            wait_until(f"{topic} has moved", (target / f"{topic}-0").exists)

        clients = Play(broker)
        clients.begin()
        for topic in _TOPICS:
            if not (broker.data_dir / f"{topic}-0").exists():
                move(broker.data_dir, topic)
        with recorded(broker) as changes:
            play(clients, broker, move)
    return changes


def main(versions: list[str]) -> None:
    """Record brokers of some versions, or of all."""
    for broker_class in _BROKERS:
        if versions and broker_class.version not in versions:
            continue
        with tempfile.TemporaryDirectory(prefix="ks-") as directory:
            changes = record(broker_class, Path(directory))
        path = RECORDED / f"kafka-{broker_class.version}.jsonl.gz"
        write_changes(path, changes)
        print(f"{path.name}: {len(changes)} changes, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
