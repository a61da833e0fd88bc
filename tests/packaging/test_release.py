"""The version stands once, in pyproject.toml; the changelog and the extras agree with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Extras for who works on kafkascan, not for who uses it.
FOR_CONTRIBUTORS = {"test", "dev", "docs", "bench"}


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


def metadata(folder: Path, repository: str) -> Message:
    """Return the metadata of the package, as built for a repository."""
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder]
    known = os.environ | {"KAFKASCAN_REPOSITORY": repository}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=known)
    return message_from_string((folder / "kafkascan.egg-info" / "PKG-INFO").read_text())


@pytest.mark.parametrize("repository", ["", "https://example.org/kafkascan"])
def test_a_package_index_shows_no_link_that_leads_nowhere(repository: str, tmp_path: Path) -> None:
    found = metadata(tmp_path, repository)
    page = found.get_payload()
    assert isinstance(page, str)
    assert found["Description-Content-Type"].startswith("text/markdown")
    links = re.findall(r"\]\(([^)]*)\)", page)
    files = f"{repository}/blob/v{PROJECT['version']}/"
    paths = [link.removeprefix(files) for link in links]
    readme = (ROOT / "README.md").read_text()
    assert len(links) == (readme.count("](") if repository else 0)
    for link, path in zip(links, paths, strict=True):
        assert link.startswith(files)
        assert (ROOT / path.removesuffix("?raw=true")).exists(), path
    urls = dict(one.split(", ") for one in found.get_all("Project-URL", []))
    assert set(urls) == ({"Repository", "Documentation", "Changelog"} if repository else set())
    assert all(url.startswith(repository) for url in urls.values())
    assert page.count("```") == readme.count("```")
