"""Bytes of a source that may be mapped are read by compiled loops only, as its file may shrink.

Python itself does not: a copy, a comparison or a slice that is read ends the process by SIGBUS.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.readme import ROOT

PACKAGE = ROOT / "kafkascan"
# Names of compiled functions and objects that are not attributes of a module of `_core`.
COMPILED = {
    "batches/verify.py": {"checksum"},
    "batches/resyncing/batch_search.py": {"searcher", "self._opened_searcher()"},
}
# They do not read the bytes; the second one writes into a buffer of its caller.
NOT_READING = {"len", "source.read_into"}
# The arrays of the first two are read by guarded loops; the third one has arrays of its own.
ARRAYS = {"records/buffers.py", "dump_log/line_output.py", "schemas/programs/typed_columns.py"}


def test_windows_of_sources_go_to_compiled_loops_only() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in unguarded_lines(path.read_text(), str(path.relative_to(PACKAGE)))
    ]
    assert not found, f"use kafkascan.io.sources.read_bytes: {', '.join(found)}"


def unguarded_lines(code: str, file: str) -> Iterator[int]:
    """Yield the lines that read a window by Python, or that may do so."""
    if ".window(" not in code and ".as_array(" not in code:
        return
    tree = ast.parse(code)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    compiled = {*_compiled_modules(tree), *COMPILED.get(file, ())}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "as_array" and file not in ARRAYS:
            yield node.lineno
        if node.func.attr == "window":
            name = _bound_name(node, parents)
            if name is None:
                yield node.lineno
                continue
            scope = tree if "." in name else _function_of(node, parents)
            yield from _other_uses(scope, name, compiled, parents)


def _compiled_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkascan._core"):
            yield from (one.asname or one.name for one in node.names)


def _bound_name(call: ast.Call, parents: dict[ast.AST, ast.AST]) -> str | None:
    """Return the name that a window gets; None if it is used in place."""
    parent = parents[call]
    if isinstance(parent, ast.withitem) and parent.optional_vars is not None:
        return ast.unparse(parent.optional_vars)
    while isinstance(parent, ast.Tuple):
        parent = parents[parent]
    if not isinstance(parent, ast.Assign):
        return None
    (target,) = parent.targets
    if isinstance(target, ast.Tuple) and isinstance(parent.value, ast.Tuple):
        target = target.elts[parent.value.elts.index(call)]
    return ast.unparse(target)


def _function_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    while not isinstance(node, (ast.FunctionDef, ast.Module)):
        node = parents[node]
    return node


def _other_uses(
    scope: ast.AST, name: str, compiled: set[str], parents: dict[ast.AST, ast.AST]
) -> Iterator[int]:
    """Yield the lines where a window is not an argument of compiled code."""
    for node in ast.walk(scope):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if ast.unparse(node) == name:
            parent = parents[node]
            is_argument = isinstance(parent, ast.Call) and node in parent.args
            callee = ast.unparse(parent.func) if isinstance(parent, ast.Call) else ""
            is_safe = callee.rpartition(".")[0] in compiled or callee in {*compiled, *NOT_READING}
            is_none = isinstance(parent, ast.Compare) and "None" in ast.unparse(parent)
            is_released = isinstance(parent, ast.withitem)
            if not ((is_argument and is_safe) or is_none or is_released):
                yield node.lineno


def test_the_check_finds_each_shape() -> None:
    guarded = "from kafkascan._core import crc as _core\n"
    shapes = [
        "def f(source): return bytes(source.window(0, 9))",
        "def f(source): return source.window(0, 9)[3]",
        "def f(source):\n  with source.window(0, 9) as window:\n    return window.tobytes()",
        "def f(source):\n  window = source.window(0, 9)\n  return window[:4] == b'abcd'",
        "def f(source):\n  at, window = 0, source.window(0, 9)\n  return np.frombuffer(window)",
        "class A:\n  def f(self): self._w = self.s.window(0, 9)\n  def g(self): return self._w[0]",
        "def f(source): return source.as_array()[0]",
    ]
    for shape in shapes:
        assert list(unguarded_lines(guarded + shape, "a.py")), shape
    fine = (
        "def f(source):\n  with source.window(0, 9) as window:\n    _core.sum(window, len(window))"
    )
    assert not list(unguarded_lines(guarded + fine, "a.py"))
