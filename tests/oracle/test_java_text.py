"""Malformed UTF-8 is replaced as Java's ``new String(bytes, UTF_8)`` does."""

from __future__ import annotations

import itertools
import random
import subprocess
from pathlib import Path

import pytest

from kafkascan._core.text_lines import java_text

pytestmark = pytest.mark.oracle

_PROGRAM = Path(__file__).with_name("java-text") / "JavaText.java"
# The bounds of all classes of bytes.
_BYTES = bytes.fromhex("007f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f7f8ff")


def test_java_text() -> None:
    texts = [bytes(one) for size in range(1, 5) for one in itertools.product(_BYTES, repeat=size)]
    choice = random.Random(3)
    pieces = ["ü".encode(), "€".encode(), "𝄞".encode(), b"ascii " * 9, b"\xed\xa0\x80", b"\xf0\x9d"]
    texts += [
        b"".join(choice.choices([*pieces, bytes([choice.choice(_BYTES)])], k=12))
        for _ in range(20_000)
    ]
    done = subprocess.run(
        ["java", "-Xmx2g", str(_PROGRAM)], input="\n".join(one.hex() for one in texts),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = done.stdout.split("\n")[:-1]
    assert len(theirs) == len(texts) > 400_000
    for text, expected in zip(texts, theirs, strict=True):
        assert java_text(text).hex() == expected, text.hex()
