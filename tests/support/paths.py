"""Folders of the repository that tests read, and paths in files of properties."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


def in_properties(*paths: Path) -> str:
    """Join paths with commas for a file of Java properties, which is Latin-1 with escapes."""
    return ",".join(json.dumps(str(path))[1:-1] for path in paths)
