"""The snippets of docs/spark.md run in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkascan.spark.options.reader_options import OPTION_NAMES
from kafkascan.spark.options.view_schemas import VIEWS, default_columns
from tests.spark.logs import DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOC = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)


def test_snippets(spark: SparkSession, store: dict[str, Any], tmp_path: Path) -> None:
    for name in ("data", "data2"):
        (tmp_path / name).symlink_to(DATA)
    names: dict[str, Any] = {}
    for number, snippet in enumerate(SNIPPETS):
        # Spark's relative paths are those of a JVM that runs elsewhere here.
        here = re.sub(r'"(data2?|backup|checkpoint|followed)"', rf'"{tmp_path}/\1"', snippet)
        here = here.replace("http://127.0.0.1:9000", store["endpoint"])
        exec(compile(here, f"docs/spark.md, snippet {number}", "exec"), names)
    assert names["spark"] is spark, "the session of the tests is taken"
    assert spark.read.parquet(f"{tmp_path}/followed").count() == names["records"].count()
    assert len(SNIPPETS) >= 10


def test_every_option_and_column_is_documented() -> None:
    for name in OPTION_NAMES:
        assert f"`{name}`" in DOC, name
    views = DOC[DOC.index("## Views") : DOC.index("## Cookbook")]
    for view in ("records", "batches"):
        for column in set(VIEWS[view]).difference(default_columns(view)):
            assert re.search(rf"\b{column.name}\b", views), column.name
