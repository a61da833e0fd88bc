"""Which remote segments belong to a log by its leader epochs, as a broker judges it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kafkascan.broker_state import LeaderEpoch
from kafkascan.tiered.joined_logs import contradiction
from kafkascan.tiered.tier_files import SyntheticFile
from kafkascan.tiered.tier_segments import TierSegment
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import Rebuild

pytestmark = pytest.mark.oracle

_COUNT = 20_000


def history(dice: random.Random) -> list[tuple[int, int]]:
    """Epochs of a log; some contain no record."""
    epochs = sorted(dice.sample(range(8), dice.randrange(1, 6)))
    starts = sorted(dice.choices(range(40), k=len(epochs)))
    return list(zip(epochs, starts, strict=True))


def segment_of(dice: random.Random, log: list[tuple[int, int]]) -> dict[str, Any]:
    """A segment of a log, or of one that differs somewhere."""
    first = dice.randrange(45)
    last = first + dice.randrange(20)
    before = [one for one in log if one[1] <= first][-1:]
    own = [(epoch, max(start, first)) for epoch, start in before]
    own += [(epoch, start) for epoch, start in log if first < start <= last]
    if not own or dice.random() < 0.5:
        own = history(dice)
    elif dice.random() < 0.3:
        changed = dice.randrange(len(own))
        own[changed] = (own[changed][0], own[changed][1] + dice.choice((-1, 1)))
    return {"first": first, "last": last, "segment": [one for one in own if one[1] >= 0]}


def is_within(case: dict[str, Any]) -> bool:
    epochs = tuple((epoch, start) for epoch, start in case["segment"])
    segment = TierSegment(
        "t", None, 0, case["first"], None, SyntheticFile(b""), {}, 0, leader_epochs=epochs
    )
    lineage = [LeaderEpoch(*one) for one in case["log"]]
    return contradiction(segment, case["last"] + 1, lineage) is None


def test_segments_within_the_lineage_of_a_log(class_paths: ClassPaths, tmp_path: Path) -> None:
    dice = random.Random(5)
    cases = []
    for _ in range(_COUNT):
        log = history(dice)
        case = {**segment_of(dice, log), "log": log}
        # Another history after the segment was uploaded: the log lost its start, or its end.
        if dice.random() < 0.3:
            case["log"] = log[dice.randrange(len(log)) :]
        cases += [case] if case["segment"] else []
    with Rebuild(class_paths.broker, tmp_path / "jvm") as rebuild:
        theirs = rebuild.are_within(cases)
    ours = [is_within(case) for case in cases]
    assert [one for one, a, b in zip(cases, ours, theirs, strict=True) if a != b] == []
    assert min(theirs.count(True), theirs.count(False)) > _COUNT // 10
