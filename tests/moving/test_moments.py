"""
What any reader says of a log that a broker changes is true of one moment, or says what changed.

`python -m tests.moving.run` tries more.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.cli.verb_table import VERBS
from tests.moving.following import follow_moving_log
from tests.moving.functions import OTHER_FUNCTIONS
from tests.moving.histories import HISTORIES
from tests.moving.moments import read_moving_log
from tests.moving.readers import READERS, histories_of
from tests.moving.run import replay_command
from tests.moving.verbs import OTHER_VERBS
from tests.support.examples import seeds
from tests.support.waiting import IS_SANITIZED

pytestmark = pytest.mark.skipif(
    IS_SANITIZED, reason="libraries that commands load end under sanitizers"
)

_PLACES = {"path", "paths", "logs", "log", "log_dir", "source", "left", "place", "partition",
           "data_dirs", "tier"}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_an_answer_is_true_of_one_moment(tmp_path: Path, reader: str) -> None:
    histories = histories_of(reader)
    first = list(READERS).index(reader)  # another history for each reader, in `make test`
    for seed in seeds(1 if " sql " in reader else 2, least=1):
        history = histories[(first + seed) % len(histories)]
        answer = read_moving_log(tmp_path / str(seed), reader, history, seed)
        assert answer.is_true(), replay_command(reader, history, seed)


@pytest.mark.parametrize(
    ("reader", "history", "seed"),
    [
        # An earlier and a later segment are left, the last one that was listed is deleted.
        ("kafkascan info of data dir", "copy_again", 50),
        # The cleaner writes its checkpoint between the audit's looks at it and at the segments.
        ("kafkascan audit with notes", "recorded kafka-3.9.1", 22),
        # The cleaner replaces a segment with an open transaction.
        ("kafkascan audit with notes", "clean", 29),
    ],
)
def test_a_history_that_had_a_false_answer(
    tmp_path: Path, reader: str, history: str, seed: int
) -> None:
    assert read_moving_log(tmp_path, reader, history, seed).is_true()


@pytest.mark.parametrize("history", HISTORIES)
def test_a_follower_yields_each_offset_once_and_in_order(tmp_path: Path, history: str) -> None:
    for seed in seeds(4, least=2):
        followed = follow_moving_log(tmp_path / str(seed), history, seed)
        assert followed.complaint() is None, (history, seed)
        assert history != "grow" or not followed.messages


def test_every_verb_that_reads_a_log_is_tried() -> None:
    tried = {name.split()[1] for name in READERS if name.startswith("kafkascan ")}
    assert tried | set(OTHER_VERBS) == set(VERBS)
    assert not tried & set(OTHER_VERBS)


def test_every_function_that_reads_a_log_is_tried() -> None:
    packages = [one for name in dir(ks) if inspect.ismodule(one := getattr(ks, name))]
    reading = {
        name
        for package in (ks, *packages)
        for name in getattr(package, "__all__", ())
        if not name.startswith("write_") and _first_parameter(getattr(package, name)) in _PLACES
    }
    tried = {name.split()[0] for name in READERS}
    assert reading - tried == set(OTHER_FUNCTIONS)


def _first_parameter(one: object) -> str | None:
    """Return the name of the first parameter of a function."""
    return next(iter(inspect.signature(one).parameters), None) if inspect.isroutine(one) else None
