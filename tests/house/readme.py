"""What README.md and docs/ show: the output of commands, and lists of commands and names.

`python -m tests.house.readme` runs the commands and updates the documents.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import itertools
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import kafkascan
from kafkascan.auditing.finding_kinds import FINDING_KINDS
from kafkascan.cli.verb_table import VERBS_BY_TASK
from kafkascan.tables.schema import Schema
from tests.support.command_line import run

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").rglob("*.md")))
API = ROOT / "docs" / "api.md"
FINDINGS = ROOT / "docs" / "findings.md"
COLUMNS = ROOT / "docs" / "columns.md"
LAYERS = [
    name.strip()
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    if contract["id"] == "rooms"
    for layer in reversed(contract["layers"])
    for name in layer.split(":")
]
_API_HEAD = """# Python API

`import kafkascan as ks`: the tables list the names that most programs need (`ks.scan_batches`), by
the sub-package that defines them. Below each table are the other names of the sub-package
(`ks.batches.column`). Everything is imported when it is first used.

Every function raises a `TypeError` for an argument of a wrong type, a `ValueError` for one that is
out of range, malformed or a closed `Source`, and an `ImportError` that names the extra to install
if a package is missing. "Raises" sections name the other errors.

Types in signatures, which type checkers can import from the sub-package (`ks.format.TimeLike`):

| type | what it stands for |
|---|---|
"""
_PAGE_TABLE = "\n| name | |\n|---|---|\n"
# Where a page is not built, its readers see the table only.
_DIRECTIVE = "\n<!-- ::: {name}{options} -->\n"
_WITH_MEMBERS = "\n    options:\n      show_if_no_docstring: true"
_NOT_IN_API = ("_core", "cli", "dump_log")  # no public names
_COLUMNS_HEAD = """# Columns

Every table of kafkascan, by the sub-package that returns it. A table has these columns, under these
names, in Python (`to_arrow()`, `to_pandas()`, `to_polars()`, `rows()`), on the command line
(`--format table|json|jsonl|csv|parquet`) and in Spark's views. `table.schema` contains the same
facts, and `table.problems` (see [problems](#problems)) says what was not read.

- `time` is milliseconds since the epoch in `rows()`, JSON and CSV, -1 for none;
  `timestamp[ms, UTC]` with nulls in Arrow, pandas, Polars and Parquet; `timestamp` in Spark.
- Other types are Arrow's: `list<T>`, `struct<name:T>` and `map<K,V>` contain other types.
- `null`: whether a value may be missing.
"""

_COLUMNS_TABLE = "| column | type | null | meaning |\n|---|---|---|---|\n"

_FINDINGS_HEAD = """# Findings of an audit

What `kafkascan audit` and [`ks.audit`](api.md) report, what it causes, and what to do.
Exit code 1 means warnings or errors, and 3 that a file could not be read; notes do not change it.
`--deep` also decodes records, which `BAD_RECORDS`, `RECORD_OFFSETS` and `MAX_TIMESTAMP_MISMATCH`
need.

| finding | severity | what it causes, and what to do |
|---|---|---|
"""
_BLOCK = re.compile(
    r"(?P<indent> *)```console\n *\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)(?P=indent)```\n"
)
_SNIPPET = re.compile(r"(?P<indent> *)```python\n(?P<code>(?:.*\n)*?)(?P=indent)```\n")
_TABLE = re.compile(r"\| task \| command \| what it does \|.*\n(?:\|.*\n)*")

_DATA = "tests/golden/kafka-4.4.0/data"
_TIERED = "tests/golden/kafka-4.4.0-tiered/data"
_SCHEMAS = "tests/golden/kafka-4.4.0-schemas/data"
_LOG = f"{_DATA}/transactions-0/00000000000000000005.log"
_EXAMPLES = {
    "info": f"{_LOG} --format jsonl --columns topic,size,records,end",
    "batches": f"{_LOG} --format jsonl --limit 1 --columns base_offset,records_count,producer_id",
    "records": f"{_LOG} --format jsonl --limit 1 --columns offset,key,value",
    "count": f"{_DATA}/transactions-0 --format jsonl --columns records,aborted_records",
    "txns": f"{_DATA}/transactions-0 --format jsonl --columns producer_id,state,first_offset"
    " --state open",
    "producers": f"{_DATA}/idempotent-0 --format jsonl --columns producer_id,batches,records",
    "advise": f"{_DATA}/codecs-java-0 --format jsonl --columns topic,stored_codecs --codec gzip",
    "dump-log": f"--files {_DATA}/transactions-0/00000000000000000005.txnindex",
    "groups": f"{_DATA} --format jsonl --columns group,topic,offset,lag",
    "txn-state": f"{_DATA} --format jsonl --columns transactional_id,status",
    "share-state": f"{_TIERED} --format jsonl --columns group,topic,partition,start_offset",
    "metadata": f"{_DATA} --format jsonl --show features",
    "remote-segments": f"{_TIERED} --format jsonl --columns topic,start_offset,state",
    "schemas": f"{_SCHEMAS} --format jsonl --columns subject,version,id,is_deleted",
    "sql": f"'SELECT topic, max(timestamp) AS latest FROM records GROUP BY ALL'"
    f" {_DATA}/idempotent-0 --format jsonl",
    "verify": f"{_LOG} --format jsonl --columns batches,bad_checksums,end",
    "audit": f"--alarms --now 2026-11-22 {_DATA}/transactions-0 --format jsonl"
    " --columns severity,symbol,offset",
    "index": f"check {_LOG} --format jsonl --columns file,entries,errors",
    "recover": "tests/golden/kafka-4.4.0-killed/data --format jsonl"
    " --columns topic,log_end_offset,truncated_bytes",
    "salvage": "SCRATCH/damaged-0 SCRATCH/new --format jsonl"
    " --columns outcome,symbol,position,first_offset",
    "restore": f"{_DATA} SCRATCH/new --topic idempotent --format jsonl"
    " --columns topic,segments,start_offset,end_offset",
    "convert": f"{_LOG} --output SCRATCH/new.log --compression-type zstd --format jsonl"
    " --columns batches,recompressed",
    "restamp": f"{_LOG} --output SCRATCH/new.log --offset-shift 5 --format jsonl"
    " --columns new_size,batches",
    "scrub": f"{_LOG} --output SCRATCH/new.log --from-offset 30 --format jsonl"
    " --columns records,emptied",
    "diff": f"{_DATA}/transactions-0 tests/golden/kafka-4.1.1/data/transactions-0"
    " --format jsonl --columns topic,kind,location",
}
# These print nothing to the terminal, or need Java.
_PAGES = {
    "report": "an HTML page; needs `kafkascan[report]` (matplotlib)",
    "spark": "[Spark](docs/spark.md)",
}


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return the commands of a document with the output that it shows."""
    return [
        (match["command"], _without(match["indent"], match["output"]))
        for match in _BLOCK.finditer(document.read_text())
    ]


def snippets(document: Path) -> list[str]:
    """Return the Python code of a document."""
    return [
        _without(match["indent"], match["code"])
        for match in _SNIPPET.finditer(document.read_text())
    ]


def output_of(command: str) -> str:
    """
    Run a command in the repository's root; return its stdout, then its stderr.

    The shell knows the root by a path that it must quote, as a reader's may be.
    """
    binaries = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "a clone \N{LATIN SMALL LETTER U WITH DIAERESIS}"
        root.symlink_to(ROOT)
        variables = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "PWD": str(root)}
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=root,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
        )
    return result.stdout + result.stderr


def table_of_commands() -> str:
    """Return the table of all commands, each with a line that it prints."""
    rows = ["| task | command | what it does | a line of its output |", "|---|---|---|---|"]
    for task, verbs in VERBS_BY_TASK.items():
        for verb in verbs:
            line = line_of_output(verb.name)
            rows.append(f"| {task} | `{verb.name}` | {verb.summary} | {line} |")
            task = ""
    return "".join(f"{row}\n" for row in rows)


def line_of_output(verb: str) -> str:
    """Run the example of a command; return the last line of its output."""
    if verb not in _EXAMPLES:
        return _PAGES[verb]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(ROOT):
        _write_damaged_log(Path(scratch) / "damaged-0")
        words = shlex.split(_EXAMPLES[verb])
        done = run(verb, *(word.replace("SCRATCH", scratch) for word in words))
    *_, line = (done.stdout or done.stderr).replace(f"{scratch}/", "").splitlines()
    return f"`{line}`"


def _write_damaged_log(folder: Path) -> None:
    """Copy a log, with one flipped bit."""
    folder.mkdir()
    data = bytearray(Path(_LOG).read_bytes())
    data[500] ^= 1
    (folder / Path(_LOG).name).write_bytes(data)


def public_names() -> dict[str, list[str]]:
    """Return the public names of each sub-package; of several that have one, the lowest's."""
    rooms: dict[str, list[str]] = {}
    seen: set[str] = set()
    for room in LAYERS:
        if room not in _NOT_IN_API:
            names = set(importlib.import_module(f"kafkascan.{room}").__all__) - seen
            rooms[room] = sorted(names, key=lambda name: (name not in kafkascan.__all__, name))
            seen |= names
    return dict(sorted(rooms.items()))


def api_pages() -> dict[Path, str]:
    """Return the API reference: an overview, and a page for each sub-package."""
    pages, with_columns = {}, schemas_by_room()
    types, rooms = dict[str, str](), list[str]()
    for room, names in public_names().items():
        found = {name: definition_of(room, name) for name in names}
        what = _summary(inspect.getdoc(importlib.import_module(f"kafkascan.{room}")) or "")
        links = ["[all sub-packages](../api.md)"]
        if room in with_columns:
            links.append(f"[columns of its tables](../columns.md#{room})")
        page = [f"# kafkascan.{room}\n\n{what} See also: {', '.join(links)}.\n", _PAGE_TABLE]
        page += [_row(f"#kafkascan.{room}.{name}", name, one) for name, one in found.items()]
        page += [
            _DIRECTIVE.format(
                name=f"kafkascan.{room}.{name}", options=_WITH_MEMBERS if one.is_enum else ""
            )
            for name, one in found.items()
        ]
        pages[API.parent / "api" / f"{room}.md"] = "".join(page)
        target = f"api/{room}.md#kafkascan.{room}"
        rows = {name: _row(f"{target}.{name}", name, one) for name, one in found.items()}
        types |= {name: rows[name] for name, one in found.items() if one.is_type_alias}
        rooms += [f"\n## [{room}](api/{room}.md)\n\n{what}\n\n", _overview_of(target, rows)]
    by_name = [types[name] for name in sorted(types)]
    return {API: "".join([_API_HEAD, *by_name, *rooms]), **pages}


def _row(target: str, name: str, definition: Definition) -> str:
    return f"| [`{name}`]({target}) | {_summary(definition.docstring).replace('|', '&#124;')} |\n"


def _overview_of(target: str, rows: dict[str, str]) -> str:
    """Return the names of a sub-package, with links to their descriptions."""
    first = [row for name, row in rows.items() if name in kafkascan.__all__]
    others = [f"[`{name}`]({target}.{name})" for name in rows if name not in kafkascan.__all__]
    table = ["| in `ks` | |\n|---|---|\n", *first, "\n"] if first else []
    room = target.rpartition(".")[2]
    return "".join([*table, f"In `ks.{room}`: {', '.join(others)}.\n" if others else ""])


class Definition(NamedTuple):
    """A public name, as its module defines it."""

    docstring: str
    is_type_alias: bool
    is_enum: bool


def definition_of(room: str, name: str) -> Definition:
    """Find where a sub-package's name is defined, without an import: pyspark may be missing."""
    for one, after in itertools.pairwise([*module_of(room, name).body, ast.Pass()]):
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name == name:
            bases = [ast.unparse(base) for base in getattr(one, "bases", ())]
            is_enum = any(base.endswith(("Enum", "Flag", "NamedCode")) for base in bases)
            return Definition(ast.get_docstring(one) or "", False, is_enum)
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            if name in map(ast.unparse, targets):
                is_alias = isinstance(one, ast.AnnAssign) and "TypeAlias" in ast.unparse(one)
                text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
                return Definition(inspect.cleandoc(text), is_alias, False)
    compiled = getattr(importlib.import_module(f"kafkascan.{room}"), name)
    return Definition(inspect.getdoc(compiled) or "", False, False)


def module_of(room: str, name: str) -> ast.Module:
    """Return the module that defines a name, which the package imports for type checkers."""
    package = ast.parse((ROOT / "kafkascan" / room / "__init__.py").read_text())
    modules = (
        node.module
        for node in ast.walk(package)
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names)
    )
    path = str(next(modules)).replace(".", "/")
    return ast.parse((ROOT / f"{path}.py").read_text())


def _summary(docstring: str) -> str:
    """Return the first sentence of a docstring."""
    first, *_ = docstring.partition("\n\n")
    return re.split(r"(?<=\.)\s", " ".join(first.split()))[0]


def findings_page() -> str:
    """Return the page about the kinds of findings, in the order of their definition."""
    rows = (
        f"| `{symbol}` | {'; '.join(filter(None, (kind.severity, kind.otherwise)))}"
        f" | {kind.advice} |\n"
        for symbol, kind in FINDING_KINDS.items()
    )
    return _FINDINGS_HEAD + "".join(rows)


def schemas_by_room() -> dict[str, dict[str, Schema]]:
    """Return the schemas of all tables, by room and name; of parts of a table, the whole one."""
    rooms: dict[str, dict[str, Schema]] = defaultdict(dict)
    for module in pkgutil.walk_packages(kafkascan.__path__, "kafkascan."):
        room = module.name.split(".")[1]
        if room in ("cli", "_core") or module.name.endswith("__main__"):
            continue
        try:
            names = vars(importlib.import_module(module.name))
        except ModuleNotFoundError as error:
            if error.name != "pyspark":
                raise
            continue  # its readers and jobs; what they read and write is declared without it
        for value in names.values():
            values = value.values() if isinstance(value, dict) else (value,)
            for schema in (one for one in values if isinstance(one, Schema)):
                known = rooms[room].get(schema.name, schema)
                rooms[room][schema.name] = max(known, schema, key=len)
    seen: set[Schema] = set()
    for room in sorted(rooms, key=list(LAYERS).index):  # of a table that is imported, the owner
        rooms[room] = {name: one for name, one in rooms[room].items() if one not in seen}
        seen |= set(rooms[room].values())
    return {room: named for room, named in sorted(rooms.items()) if named}


def columns_page() -> str:
    """Return the page about the columns of all tables."""
    parts = [_COLUMNS_HEAD]
    for room, schemas in schemas_by_room().items():
        parts.append(f"\n## {room}\n\nSee [kafkascan.{room}](api/{room}.md).\n")
        for name, schema in sorted(schemas.items()):
            parts.append(f"\n### {name}\n\n{_COLUMNS_TABLE}")
            for one in schema:
                unit = f" ({one.unit})" if one.unit in ("bytes", "ms") else ""
                null = "yes" if one.nullable else ""
                parts.append(f"| `{one.name}` | {one.type}{unit} | {null} | {one.meaning} |\n")
    return "".join(parts)


def updated(text: str) -> str:
    """Return a document with the current output of its commands, and the table of commands."""

    def shown(match: re.Match[str]) -> str:
        lines = [f"```console\n$ {match['command']}\n", output_of(match["command"]), "```\n"]
        return _with(match["indent"], "".join(lines))

    return _TABLE.sub(lambda _: table_of_commands(), _BLOCK.sub(shown, text))


def _with(indent: str, text: str) -> str:
    return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))


def _without(indent: str, text: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def main() -> None:
    """Update all documents."""
    for document in DOCUMENTS:
        document.write_text(updated(document.read_text()))
    for page, text in api_pages().items():
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)
    FINDINGS.write_text(findings_page())
    COLUMNS.write_text(columns_page())


if __name__ == "__main__":
    main()
