"""Random lives of a registry: the replay, and one that is written for clarity."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkascan.schemas import Registry, open_registry
from tests.support.examples import seeds
from tests.support.internal_topics import KeyValue, TopicLog
from tests.support.schema_topics import delete_subject, schema, schema_key, setting

State = dict[tuple[str, int], tuple[int, str, bool]]
SUBJECTS = ("a", "b", ":.x:a", ":.x:b", ":.y:a")


def context_of(subject: str) -> str:
    return subject.split(":")[1] if subject.startswith(":") else ""


class Life:
    """Changes a registry at random, and follows its state without any index."""

    def __init__(self, seed: int, *, is_well_formed: bool) -> None:
        self.random = random.Random(seed)
        self.is_well_formed = is_well_formed
        self.state: State = {}
        self.last = dict.fromkeys(SUBJECTS, 1)
        self.records: list[KeyValue] = []
        for _ in range(60):
            self.step()

    def step(self) -> None:
        subject, kind = self.random.choice(SUBJECTS), self.random.randrange(8)
        version = self.random.randint(1, 4)
        if kind < 4:
            # Of a registry, an id means a text.
            number = self.random.randint(1, 6)
            text = f'"{number}"'
            if not self.is_well_formed and self.random.random() < 0.3:
                text = '"other"'
            self.register(subject, version, number, text, self.random.random() < 0.3)
        elif kind == 4:
            self.records.append((schema_key(subject, version), None))
            self.state.pop((subject, version), None)
        elif kind in (5, 6):
            last = self.last[subject] if self.is_well_formed else version
            self.records.append(delete_subject(subject, last))
            self.change(subject, lambda key, one: (*one[:2], one[2] or key[1] <= last))
        elif not self.is_well_formed:
            place = self.random.choice([subject, f":{context_of(subject) or '.'}:"])
            self.records.append(setting("CLEAR_SUBJECT", place, {"subject": place}))
            self.state = {
                key: one
                for key, one in self.state.items()
                if not one[2]
                or (
                    key[0] != place
                    and (place[-1] != ":" or context_of(key[0]) != context_of(subject))
                )
            }

    def register(self, subject: str, version: int, number: int, text: str, deleted: bool) -> None:
        self.records.append(schema(subject, version, number, text, deleted=deleted))
        taken = {
            one[1]
            for key, one in self.state.items()
            if one[0] == number and context_of(key[0]) == context_of(subject)
        }
        self.last[subject] = max(self.last[subject], version)
        if not taken or text in taken:
            self.state[subject, version] = (number, text, deleted)

    def change(self, subject: str, new: object) -> None:
        assert callable(new)
        self.state = {
            key: new(key, one) if key[0] == subject else one for key, one in self.state.items()
        }


def state_of(registry: Registry) -> State:
    return {
        (one.subject, one.version): (one.schema.id, one.schema.text, one.is_deleted)
        for one in registry
    }


@pytest.mark.parametrize("seed", seeds(120))
@pytest.mark.parametrize("is_well_formed", [True, False])
def test_the_state_is_that_of_the_rules(tmp_path: Path, seed: int, is_well_formed: bool) -> None:
    life = Life(seed, is_well_formed=is_well_formed)
    log = TopicLog(tmp_path / "_schemas-0").add(*life.records)
    found = open_registry(log.write())
    assert state_of(found) == life.state
    known = {(context_of(subject), one[0]): one[1] for (subject, _), one in life.state.items()}
    for number in range(1, 7):
        for context in ("", ".x", ".y"):
            schema_ = found.schema(number, context=context)
            assert (schema_ and schema_.text) == known.get((context, number))
    for subject in SUBJECTS:
        alive = [key[1] for key, one in life.state.items() if key[0] == subject and not one[2]]
        newest = found.newest(subject)
        assert (newest and newest.id) == (life.state[subject, max(alive)][0] if alive else None)


@pytest.mark.parametrize("seed", seeds(120))
def test_compaction_leaves_the_state_at_the_end(tmp_path: Path, seed: int) -> None:
    """It holds if a deletion of a subject names its last version, and if nothing is cleared."""
    life = Life(seed, is_well_formed=True)
    whole = TopicLog(tmp_path / "whole" / "_schemas-0").add(*life.records)
    last = {key: offset for offset, (key, _) in enumerate(life.records)}
    removed = [offset for offset, (key, _) in enumerate(life.records) if last[key] != offset]
    compacted = TopicLog(tmp_path / "less" / "_schemas-0").add(*life.records).without(removed)
    found = open_registry(compacted.write())
    assert state_of(found) == state_of(open_registry(whole.write()))
    assert not len(found.problems)
