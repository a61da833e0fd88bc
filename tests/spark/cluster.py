"""A standalone cluster on loopback: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.support.waiting import HANG_SECONDS


@dataclass
class Cluster:
    """A running cluster."""

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]
    hosts: list[str]

    def executors(self, worker: int) -> list[int]:
        """Process ids of the executors of a worker."""
        ps = ["ps", "-axww", "-o", "pid=,ppid=,command="]
        listed = subprocess.run(ps, capture_output=True, text=True, check=True).stdout
        found = [line.split(maxsplit=2) for line in listed.splitlines()]
        return [
            int(pid)
            for pid, parent, command in found
            if int(parent) == self.workers[worker].pid and "CoarseGrainedExecutor" in command
        ]

    def command(self, pid: int) -> str:
        """The command line of a process."""
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True, check=True).stdout

    def kill_worker(self, worker: int) -> None:
        """Kill a worker as a crash would; its executors detect it."""
        self.workers[worker].send_signal(signal.SIGKILL)
        self.workers[worker].wait(HANG_SECONDS)


@contextmanager
def running_cluster(
    java_home: str, folder: Path, spark_home: Path = Path(pyspark.__file__).parent
) -> Iterator[Cluster]:
    """Start a cluster of a Spark, by default the installed one, and end its processes after use."""
    with ExitStack() as stack:
        log = folder / "master.log"
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        homes = (java_home, spark_home)
        stack.enter_context(_process(homes, [*master, "--port", "0", "--webui-port", "0"], log))
        url = _wait_for(log, r"(spark://127\.0\.0\.1:\d+)")
        workers, hosts = [], ["127.0.0.1", _other_host()]
        for number, host in enumerate(hosts):
            log = folder / f"worker-{number}.log"
            work = folder / f"work-{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", host]
            # Two applications may run at once, each with an executor per worker.
            size = ["--cores", "2", "--memory", "1200m", "--webui-port", "0"]
            command = [*worker, *size, "--work-dir", str(work), url]
            workers.append(stack.enter_context(_process(homes, command, log)))
        for number in range(2):
            _wait_for(folder / f"worker-{number}.log", r"(Successfully registered with master)")
        yield Cluster(url, folder, workers, hosts)


def _other_host() -> str:
    """A second name of this machine: Spark speculates on another host only."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", 0))
        except OSError:
            return "127.0.0.1"
    return "127.0.0.2"


@contextmanager
def _process(
    homes: tuple[str, Path], command: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    java_home, home = homes
    java = [f"{java_home}/bin/java", "-Xmx256m", "-cp", f"{home}/jars/*"]
    options = ["-XX:+IgnoreUnrecognizedVMOptions", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_SCALA_VERSION"] = "2.13"  # nobody can look it up in a build folder
    config = log.with_suffix(".properties")
    config.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\nappender.out.name = out\nappender.out.target = SYSTEM_OUT\n"
        "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %m%n\n"
    )
    options.append(f"-Dlog4j2.configurationFile={config.as_uri()}")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*java, *options, *command], stdout=out, stderr=out, env=environment
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(HANG_SECONDS)


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"{pattern} is not in {log}:\n{log.read_text()[-2000:]}")
