"""Versions of PySpark that were not tested are refused by name. Needs no JVM."""

from __future__ import annotations

import re
import tomllib

import pytest

from kafkascan.spark.readers import PYSPARK, require_pyspark
from tests.support.paths import ROOT
from tests.support.warm_process import run_warm

# Without the data sources, as PySpark 3.5 is.
IMPORT = """
import sys
import pyspark
pyspark.__version__ = sys.argv[1]
sys.modules["pyspark.sql.datasource"] = None
"""
USES = [
    "from kafkascan import spark; spark.records(None, 'x')",
    "from kafkascan import spark; spark.register(None)",
    "from kafkascan import spark; spark.jobs.export(None, 'x', 'y')",
    "from kafkascan.cli import main; sys.exit(main(['spark', 'verify', 'x']))",
]


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0.dev2", "4.3.0", "4.3.17+databricks.1"])
def test_tested_versions_are_accepted(version: str) -> None:
    require_pyspark(version)


@pytest.mark.parametrize("version", ["3.5.1", "4.4.0", "4.10.0", "5.0.0.dev1", "unknown"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"this is {version}")):
        require_pyspark(version)


@pytest.mark.parametrize("use", USES)
def test_every_use_refuses(use: str) -> None:
    pytest.importorskip("pyspark")
    ended = run_warm(IMPORT + use, "3.5.1")
    assert ended.returncode != 0
    expected = "kafkascan needs PySpark 4.0 to 4.3; this is 3.5.1"
    assert ended.stderr.splitlines()[-1].endswith(f"Error: {expected}")


def test_the_extra_installs_an_accepted_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest, (major, minor)) = PYSPARK
    wanted = f"pyspark>={oldest[0]}.{oldest[1]},<{major}.{minor + 1}"
    assert wanted in extras["optional-dependencies"]["spark"]


def test_pyspark_supports_the_installed_pandas() -> None:
    """It warns of a newer one, and warnings fail tests."""
    utils = pytest.importorskip("pyspark.sql.pandas.utils")
    utils.require_minimum_pandas_version()
