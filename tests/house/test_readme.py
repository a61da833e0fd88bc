"""README.md and docs/ show the real output of commands, code that runs, and links that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import kafkascan as ks
from kafkascan.cli import commands, exit_codes
from kafkascan.cli.shared_options import FORMATS
from tests.house.readme import (
    COLUMNS,
    DOCUMENTS,
    FINDINGS,
    README,
    ROOT,
    api_pages,
    blocks,
    columns_page,
    findings_page,
    output_of,
    schemas_by_room,
    snippets,
    table_of_commands,
)
from tests.support.warm_process import run_warm

MAX_README_LINES = 150
# Their code needs Spark (`tests/spark/test_docs.py`), or is about files that are not there.
NOT_RUN = ("docs/spark", "docs/how-to/lakehouse.md", "docs/salvage.md", "docs/performance.md")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def named(found: list[tuple[Path, str]]) -> list[object]:
    return [
        pytest.param(document, *rest, id=f"{document.relative_to(ROOT)}-{rest[0][:30]}")
        for document, *rest in found
    ]


_KAFKASCAN = "import sys; from kafkascan.cli import main; sys.exit(main())"


def _output(command: str) -> str:
    """Run commands of a shell as they are, and others in a warm process."""
    program, *arguments = shlex.split(command)
    if program != "kafkascan" or set(command) & set("|&;<>$"):
        return output_of(command)
    done = run_warm(_KAFKASCAN, *arguments, folder=ROOT)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("document", "command", "output"),
    named([(document, *block) for document in DOCUMENTS for block in blocks(document)]),
)
def test_console_blocks(document: Path, command: str, output: str) -> None:
    assert _output(command) == output
    assert output.count("\n") >= 2


@pytest.mark.parametrize(
    ("document", "code"),
    named([
        (document, code)
        for document in DOCUMENTS
        if not document.relative_to(ROOT).as_posix().startswith(NOT_RUN)
        for code in snippets(document)
    ]),
)  # fmt: skip
def test_python_blocks_run(
    document: Path, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Blocks name the golden files from the repository's root, and may write where they run.
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    exec(compile(code, str(document), "exec"), {})


def test_documents_have_blocks() -> None:
    assert len(blocks(README)) >= 3
    assert sum(len(blocks(document)) for document in DOCUMENTS) >= 10
    assert sum(len(snippets(document)) for document in DOCUMENTS) >= 8


def test_readme_is_short_and_lists_all_commands() -> None:
    text = README.read_text()
    assert text.count("\n") <= MAX_README_LINES
    assert table_of_commands() in text


def test_the_first_commands_of_the_readme_need_no_release() -> None:
    text = README.read_text()
    first, second = re.findall(r"^    (\S.*)$", text, re.M)[:2]
    assert first.startswith("make demo   # ")
    assert second.startswith("make test   # ")
    assert all("minutes" in one for one in (first, second))
    assert text.index(second) < text.index("From a release: `pip install")
    for name in ("index.md", "getting-started.md"):
        commands = re.findall(r"^    (\S.*)$", (ROOT / "docs" / name).read_text(), re.M)
        assert commands[0].startswith("make demo")
        assert commands[2].endswith("# from a release")


def test_the_readme_lists_exit_codes_and_formats() -> None:
    (said,) = re.findall(r"Rows go to stdout.*?Kafka's tool\.$", README.read_text(), re.M | re.S)
    codes = {getattr(exit_codes, name) for name in dir(exit_codes) if name.startswith("EXIT_")}
    assert set(map(int, re.findall(r"\b\d+\b", said))) == codes
    table = (ROOT / "docs" / "concepts.md").read_text()
    assert set(map(int, re.findall(r"^\| (\d+) \|", table, re.M))) == codes
    assert f"`--format {'|'.join(FORMATS)}`" in said
    assert "parquet" in said


def test_make_help_lists_all_targets() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert targets is not None
    assert set(targets[1].split()) == set(re.findall(r"^([a-z-]+):.*## ", text, re.M))


def test_links_exist() -> None:
    found = [
        (document, link) for document in DOCUMENTS for link in LINK.findall(document.read_text())
    ]
    assert len(found) >= 30
    assert [
        (document.name, link) for document, link in found if not (document.parent / link).exists()
    ] == []


def test_every_kind_of_finding_is_explained() -> None:
    assert FINDINGS.read_text() == findings_page(), "run: python -m tests.house.readme"


def test_every_column_is_explained() -> None:
    assert COLUMNS.read_text() == columns_page(), "run: python -m tests.house.readme"
    without = [
        (schema.name, one.name)
        for schemas in schemas_by_room().values()
        for schema in schemas.values()
        for one in schema
        if not one.meaning
    ]
    assert without == []


def test_every_public_name_is_in_the_api_reference() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    described = set()
    for page, text in api_pages().items():
        assert page.read_text() == text, "run: python -m tests.house.readme"
        assert f" {page.relative_to(ROOT / 'docs')}\n" in navigation
        described |= set(re.findall(r"^<!-- ::: kafkascan\.\w+\.(\w+)\b", text, re.M))
        assert not re.search(r"^\| \[`\w+`\]\(.*\) \|  \|$", text, re.M), "a name has no docstring"
    assert described >= set(ks.__all__) - {"__version__"}


def test_the_reference_of_commands_has_all_of_them() -> None:
    """It is generated from this group, subcommands included."""
    page = (ROOT / "docs/commands.md").read_text()
    assert ":module: kafkascan.cli.commands" in page
    assert ":command: cli" in page
    context = click.Context(commands.cli)
    for name in commands.cli.list_commands(context):
        command = commands.cli.get_command(context, name)
        assert command is not None
        assert command.help, name
