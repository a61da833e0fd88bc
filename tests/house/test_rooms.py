"""The rooms of the package: each module is in one, and a name stands for one thing.

The order of the rooms is import-linter's (``make lint``).
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import kafkascan

PACKAGE = Path(kafkascan.__file__).parent
# The compiled twin of a module may have its name: `_core.indexes` is the loops of
# `broker_state.indexes`.
COMPILED = "_core"
MAX_ENTRIES = 24  # `kafkascan.polars` is a public name of its own, beside `kafkascan.spark`
MAX_MODULES = 16


def rooms() -> list[str]:
    """The rooms in the order of import-linter's contract."""
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["id"] == "rooms"]
    return [name.strip() for layer in layers for name in layer.split(":")]


def sources(room: str) -> list[Path]:
    """The Python modules of a room, without its ``__init__`` and ``__main__``."""
    return [path for path in (PACKAGE / room).rglob("*.py") if not path.name.startswith("__")]


def packages() -> Iterator[Path]:
    """``__init__`` of the packages with lazy names."""
    for path in PACKAGE.rglob("__init__.py"):
        if "attach(" in path.read_text():
            yield path


def test_every_module_is_in_a_room() -> None:
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert entries == {*rooms(), "__init__.py", "__main__.py", "py.typed"}
    assert len(entries) <= MAX_ENTRIES


def test_rooms_have_at_most_a_dozen_modules() -> None:
    counts = {
        path.parent: sum(not one.name.startswith("__") for one in path.parent.glob("*.py"))
        for path in PACKAGE.rglob("__init__.py")
    }
    assert len(counts) >= 15, "a check over nothing is no check"
    assert {path.name: count for path, count in counts.items() if count > MAX_MODULES} == {}


def test_rooms_share_no_module_name() -> None:
    owners = defaultdict(set)
    for room in rooms():
        for path in sources(room):
            owners[path.stem].add(room)
    assert len(owners) >= 80, "a check over nothing is no check"
    owners = {name: found for name, found in owners.items() if len(found - {COMPILED}) > 1}
    assert owners == {}


def test_modules_share_no_public_class_name() -> None:
    owners = defaultdict(list)
    for room in rooms():
        for path in sources(room):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    owners[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(owners) >= 150, "a check over nothing is no check"
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


def test_one_module_reads_the_clock() -> None:
    """Others ask `milliseconds_or_now`, so that a caller's time replaces all of them."""
    wall_clock = re.compile(r"\btime\.time(_ns)?\(|\bclock\.time(_ns)?\(|\b(utc)?now\(|\btoday\(")
    readers = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if wall_clock.search(path.read_text())
    ]
    assert readers == ["format/times.py"]


def declared(path: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Pairs of module and name that a package declares: to type checkers, and to Python."""
    package = ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    typed, lazy = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{package}."):
            module = str(node.module).removeprefix(f"{package}.")
            typed |= {(module, alias.name) for alias in node.names if alias.asname}
        if isinstance(node, ast.keyword) and node.arg == "names":
            table = ast.literal_eval(node.value)
            lazy |= {(module, name) for module, names in table.items() for name in names}
    return typed, lazy


def test_type_checkers_and_python_see_the_same_names() -> None:
    checked = 0
    for path in packages():
        typed, lazy = declared(path)
        assert typed == lazy, path
        checked += len(typed)
    assert checked >= 150, "a check over nothing is no check"


def test_a_public_name_is_no_module_of_its_package() -> None:
    """Importing a submodule sets an attribute of the package, which would hide the name."""
    for path in packages():
        modules = {one.stem for one in path.parent.iterdir()}
        _, lazy = declared(path)
        assert {name for _, name in lazy} & modules == set(), path
