"""Prose uses standard technical terms: phrases that have a plainer equivalent are not used."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT

FOLDERS = (
    "kafkascan", "pyspark_kafkascan", "csrc", "docs", "examples", "asv_benchmarks", "tests",
)  # fmt: skip
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md", ".j2", ".java", ".yml")

# Phrase: what to write instead.
PHRASES = {
    "anew": "again; rewritten, rebuilt",
    "as it may be": "no action needed",
    "handed over": "returned, passed",
    "held against": "compared with",
    "in vain": "without success",
    "looked through": "checked",
    "mended": "repaired",
    "mending": "repairing",
    "noted down": "planned, recorded",
    "passed over": "skipped",
    "put in order": "recover, sort",
    "taken apart": "split",
    "told": "reported, known from",
    "true batch": "valid batch",
    "upstairs": "the layer above",
    "what becomes of": "the result of",
    "whoever": "the caller, the reader",
}
PATTERN = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def documents() -> list[Path]:
    found = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    found = [path for path in found if path.suffix in SUFFIXES and "target" not in path.parts]
    return [*found, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "setup.py"]


def test_no_document_uses_a_phrase_that_has_a_plainer_equivalent() -> None:
    texts = {path: path.read_text("utf-8") for path in documents() if path != Path(__file__)}
    assert len(texts) >= 300, "a check over nothing is no check"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: write {PHRASES[match[0].lower()]!r}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in PATTERN.finditer(line)
    ]
    assert not found, "\n" + "\n".join(found)
