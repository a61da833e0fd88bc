"""Build the Java programs of the oracle; return their class paths."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PROJECTS = (
    "java", "java-conversion", "java-dump", "java-dump-previous", "java-legacy", "java-older",
    "java-previous",
)  # fmt: skip


@dataclass(frozen=True)
class ClassPaths:
    """One class path per Kafka version in use."""

    broker: str
    """The current broker, its clients, and the oracle's own programs."""
    dump: str
    """DumpLogSegments of the same version, and other tools."""
    previous_dump: str
    """DumpLogSegments of the version before it."""
    older: str
    """A broker of the last line before 4.0."""
    previous: str
    """An earlier broker of the current line."""
    legacy: str
    """The old broker and its ZooKeeper."""
    conversion: str
    """The last Kafka that converts messages between formats."""


def build() -> ClassPaths:
    """Build all Maven projects. A missing tool fails the run."""
    for project in _PROJECTS:
        package(_HERE / project)
    return ClassPaths(
        broker=f"{_target('java')}/oracle.jar:{_target('java')}/lib/*",
        dump=f"{_target('java-dump')}/oracle-dump.jar:{_target('java-dump')}/lib/*",
        previous_dump=f"{_target('java-dump-previous')}/lib/*",
        older=f"{_target('java-older')}/lib/*",
        previous=f"{_target('java-previous')}/lib/*",
        legacy=f"{_target('java-legacy')}/lib/*",
        conversion=f"{_target('java-conversion')}/oracle-conversion.jar:{_target('java-conversion')}/lib/*",
    )


def version_of(class_path: str, artifact: str) -> str:
    """Return the version of a jar on a class path from its file name."""
    libraries = Path(class_path.rpartition(":")[2]).parent
    (jar,) = libraries.glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")


def _target(project: str) -> Path:
    return _HERE / project / "target"


def package(project: Path) -> None:
    """Build one Maven project, once in a run of several processes, which use its files."""
    run, stamp = os.environ.get("PYTEST_XDIST_TESTRUNUID", ""), project / "target" / "built-for"
    with open(project / "pom.xml", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not run or not stamp.exists() or stamp.read_text() != run:
            _package(project)
            stamp.write_text(run)


def _package(project: Path) -> None:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise RuntimeError(
                f"the oracle needs {tool!r} on the PATH (Java 17 or newer, Maven 3.8 or newer)"
            )
    maven = subprocess.run(
        ["mvn", "-q", "-B", "package"], cwd=project, capture_output=True, text=True, check=False
    )
    if maven.returncode != 0:
        raise RuntimeError(f"mvn package failed in {project.name}:\n{maven.stdout}{maven.stderr}")
