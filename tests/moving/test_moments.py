"""
What any reader says of a log that its broker writes is true of one moment of the log.

`python -m tests.moving.run` also tries what takes something away from a log.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.moving.moments import read_moving_log
from tests.moving.readers import READERS
from tests.support.examples import seeds
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)


@pytest.mark.parametrize("reader", READERS)
def test_an_answer_is_true_of_one_moment(tmp_path: Path, reader: str) -> None:
    for seed in seeds(12, least=2):
        answer = read_moving_log(tmp_path / str(seed), reader, "grow", seed)
        assert answer.is_true(), f"python -m tests.moving.run {seed} {seed + 1} '{reader}' grow"
