"""
What any reader says of a log that a broker changes is true of one moment, or says what changed.

`python -m tests.moving.run` tries more, also what is not true yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.moving.histories import CHANGES
from tests.moving.moments import read_moving_log
from tests.moving.readers import READERS
from tests.support.examples import seeds
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)

# Of appends, they are true. A follower has no one moment, nor do the notes of an audit.
_TRUE_OF_APPENDS = ("LogFollower", "audit with notes")


@pytest.mark.parametrize("reader", READERS)
def test_an_answer_is_true_of_one_moment(tmp_path: Path, reader: str) -> None:
    changes = ["grow"] if reader in _TRUE_OF_APPENDS else list(CHANGES)
    first = list(READERS).index(reader)  # another change for each reader, in `make test`
    for seed in seeds(24, least=2):
        change = changes[(first + seed) % len(changes)]
        answer = read_moving_log(tmp_path / str(seed), reader, change, seed)
        replay = f"python -m tests.moving.run {seed} {seed + 1} '{reader}' {change}"
        assert answer.is_true(), replay
