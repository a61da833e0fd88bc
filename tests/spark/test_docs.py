"""The snippets and commands of the pages about Spark run in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkascan.cli.verbs.spark_commands import spark as group
from kafkascan.spark.options.reader_options import OPTION_NAMES
from kafkascan.spark.options.view_schemas import VIEWS, default_columns
from kafkascan.spark.readers import require_pyspark
from tests.spark.logs import DATA
from tests.spark.shared_session import Builder, Session
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVERVIEW = ROOT / "docs" / "spark.md"
READING = ROOT / "docs" / "spark" / "reading.md"
PAGES = (OVERVIEW, *sorted((ROOT / "docs" / "spark").glob("*.md")))
MAX_OVERVIEW_LINES = 150
# A snippet, and the output that the page shows after it.
SNIPPET = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
COMMAND = re.compile(r"^\$ kafkascan spark (.*)\n((?:(?!```|\$ ).*\n)*)", re.MULTILINE)
FOLDERS = re.compile(r'"(data2?|backup|checkpoint|followed|indexes)"')


def without_blank_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SNIPPET.search(page.read_text())], ids=lambda page: page.stem
)
def test_snippets(
    page: Path,
    spark: SparkSession,
    store: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("data", "data2"):
        (tmp_path / name).symlink_to(DATA)
    names: dict[str, Any] = {}
    for number, (snippet, output) in enumerate(SNIPPET.findall(page.read_text())):
        # Spark's relative paths are those of a JVM that runs elsewhere here.
        here = FOLDERS.sub(rf'"{tmp_path}/\1"', snippet)
        here = here.replace("http://127.0.0.1:9000", store["endpoint"])
        exec(compile(here, f"{page.name}, snippet {number}", "exec"), names)
        printed = capsys.readouterr().out
        assert not output or without_blank_lines(printed) == without_blank_lines(output)
        assert names["spark"] is spark, "the first snippet takes the session of the tests"
    if page.stem == "streams":
        followed = spark.read.parquet(f"{tmp_path}/followed")
        assert followed.count() == names["kspark"].records(spark, str(DATA)).count()


def test_commands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder(Session(spark)))
    found = [match for page in PAGES for match in COMMAND.findall(page.read_text())]
    assert len(found) >= 1
    for command, output in found:
        words = [str(DATA) if word == "data" else word for word in command.split()]
        result = CliRunner().invoke(group, words)
        printed = result.output.replace(str(DATA), "data")
        assert without_blank_lines(printed) == without_blank_lines(output)


def test_the_overview_is_short_and_has_all_pages() -> None:
    text = OVERVIEW.read_text()
    assert text.count("\n") <= MAX_OVERVIEW_LINES
    assert [page.name for page in PAGES[1:] if f"(spark/{page.name})" not in text] == []


def test_the_overview_shows_how_other_versions_are_refused() -> None:
    with pytest.raises(ImportError) as refused:
        require_pyspark("3.5.1")
    assert f"ImportError: {refused.value}\n" in OVERVIEW.read_text()


def test_every_option_and_column_is_documented() -> None:
    text = READING.read_text()
    for name in OPTION_NAMES:
        assert f"`{name}`" in text, name
    views = text[text.index("## Views") : text.index("## Options")]
    for view in ("records", "batches"):
        for column in set(VIEWS[view]).difference(default_columns(view)):
            assert re.search(rf"\b{column.name}\b", views), column.name
