"""Properties files, parsed as Java parses them."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from kafkascan.broker_state.server_properties import parse_properties
from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command

pytestmark = pytest.mark.oracle

_COUNT = 2000
_PARTS = [
    "log.dirs", "a", "b", "é", "\xa0", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\\n", "\\u00e9",
    "\\:", "#", "!", "\n", "\r", "\r\n", "\n\n", "\\\n", "\\\r\n", ",", "/data", "\x00",
    "\x1c", "\x85",
]  # fmt: skip


def test_random_files(class_paths: ClassPaths, tmp_path: Path) -> None:
    choice = random.Random(5)
    texts = ["".join(choice.choices(_PARTS, k=choice.randrange(20))) for _ in range(_COUNT)]
    files = [tmp_path / str(number) for number in range(_COUNT)]
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text.encode("latin-1"))
    main = "kafkascan.oracle.LoadProperties"
    command = java_command(class_paths.broker, main, [str(file) for file in files])
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    answers = [json.loads(line) for line in printed.splitlines()]
    assert len(answers) == _COUNT
    for text, answer in zip(texts, answers, strict=True):
        if answer is not None:
            answer.pop("", None)
            assert parse_properties(text) == answer, text
    assert sum(answer is None for answer in answers) < _COUNT / 10
