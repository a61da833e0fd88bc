"""Types in signatures of public functions and methods are public, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.readme import module_of, public_names

PUBLIC = public_names()
# What packages use of each other, in members that no program needs.
_INTERNAL = {"Buffers", "Gathered", "Located", "PrefetchingReader", "borrowed_source"}
_INTERNAL |= {"Fields", "Folder", "RecordColumns"}


def test_types_in_signatures_can_be_imported() -> None:
    known = {name for names in PUBLIC.values() for name in names} | _INTERNAL
    missing = {
        f"{room}.{name}: {kind}"
        for room, names in PUBLIC.items()
        if room != "spark"  # its types are pyspark's
        for name in names
        for kind in _types_in_signatures(module_of(room, name), name)
        if kind not in known
    }
    assert missing == set()


def _types_in_signatures(module: ast.Module, name: str) -> set[str]:
    """Return the project's own types in the annotations of a function, or a class's methods."""
    ours = _names_of_ours(module)
    return {
        node.id
        for found in module.body
        if isinstance(found, (ast.FunctionDef, ast.ClassDef)) and found.name == name
        for function in _functions(found)
        for annotation in _annotations(function)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id in ours
    }


def _names_of_ours(module: ast.Module) -> set[str]:
    """Return the names of a module that it defines, or imports from the project."""
    names = set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kafkascan."):
            names |= {one.name for one in node.names}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(ast.unparse(node.target))
    return names


def _functions(found: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    if isinstance(found, ast.FunctionDef):
        yield found
        return
    for one in found.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            yield one


def _annotations(function: ast.FunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    yield from (one.annotation for one in every if one.annotation is not None)
    if function.returns is not None:
        yield function.returns
