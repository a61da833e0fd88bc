"""The version stands once, in pyproject.toml; the changelog and the extras agree with it."""

from __future__ import annotations

import re
import tomllib

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Extras for who works on kafkascan, not for who uses it.
FOR_CONTRIBUTORS = {"dev", "dev-spark", "docs", "bench"}


def test_the_changelog_begins_with_what_is_unreleased_and_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} \(\d{{4}}-\d\d-\d\d\)", headings[1])


def test_no_module_repeats_the_version() -> None:
    sources = [ROOT / "setup.py", *(ROOT / "kafkascan").rglob("*.py")]
    quoted = re.compile(rf"[\"']{re.escape(PROJECT['version'])}[\"']")
    assert len(sources) > 100
    assert [path for path in sources if quoted.search(path.read_text())] == []


def test_the_extra_all_contains_every_other_extra_of_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.fullmatch(r"kafkascan\[(.+)\]", everything)[1].split(","))
    assert named == set(extras) - FOR_CONTRIBUTORS - {"all"}
