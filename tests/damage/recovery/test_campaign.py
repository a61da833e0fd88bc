"""Some hundred logs of the salvage campaign; the module is a program that runs many more."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery.salvaging.header_repair import FieldRepair
from tests.damage.recovery.campaign.broker_logs import FIRST_OF_BROKERS
from tests.damage.recovery.campaign.damage_kinds import KINDS
from tests.damage.recovery.campaign.known_logs import TrackedBytes
from tests.damage.recovery.campaign.more_damage import MORE_KINDS
from tests.damage.recovery.campaign.more_logs import FIRST_NUMBER
from tests.damage.recovery.campaign.oracle import Oracle
from tests.damage.recovery.campaign.rearrangements import FIRST_REARRANGED, REARRANGEMENTS
from tests.damage.recovery.campaign.runs import Campaign, damaged_log

# Logs that were salvaged wrongly once.
_ONCE_WRONG = [
    2352, 405461, 1004255, 1004450, 1004601, 2002919, 2003066, 2005504, 6010261, 6010830,
    70000185, 71000724, 71001770, 71002899, 72001513, 72002497, 72002790, 75001245, 77001392,
    200001754, 230001240, 230002873, 230003089, 230014875, 300000381, 320008821, 340008031,
    86001291, 86001462, 87000017, 90104488, 90207595, 90502607, 91102537, 91103810, 91206420,
    91207104, 91400099, 91501410, 91506121, 91508849, 95031690, 96000076, 1000007261,
    1000012756, 1000022379, 1000031274, 1001001061, 1001004604, 1001006774, 1001009575,
    1001009803, 95203189, 1001012988, 1001017597, 1001021417, 1001026006, 95217055, 97048813,
    97067118, 97154413, 97063048, 97122976, 97094701, 1002100420, 1003002180, 1003032598,
    98031452, 98136741, 99000346, 99029796, 99107544, 99167462, 99305141, 99310526, 1004001318,
    1004012235, 1004023609, 1004026428, 1004028957, 1004045907, 1004047091, 1004047381,
    1005021145, 99521924, 99474151, 99485798, 99578217, 2110002124, 2110005021, 2110011584,
    2500001153, 111005386, 111013917, 1111026533,
    1112022638, 115124598, 116107284,
]  # fmt: skip


@pytest.mark.parametrize(
    "start",
    [
        *(first + more for first in (1, FIRST_NUMBER, FIRST_REARRANGED) for more in (0, 1000)),
        FIRST_OF_BROKERS,
    ],
)
def test_salvage_of_damaged_logs(start: int, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    for number in range(start, start + 75):
        campaign.run(number)
    assert campaign.violations == []
    assert campaign.verdicts["batches kept as they were"] > 500


@pytest.mark.parametrize("number", _ONCE_WRONG)
def test_logs_that_were_salvaged_wrongly(number: int, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    campaign.run(number)
    assert campaign.violations == []


def test_all_kinds_of_damage_occur() -> None:
    rearranged = MORE_KINDS | REARRANGEMENTS
    for start, kinds in ((0, KINDS), (FIRST_NUMBER, MORE_KINDS), (FIRST_REARRANGED, rearranged)):
        seen = {kind for number in range(start, start + 400) for kind in damaged_log(number)[2]}
        assert seen == set(kinds)


def test_the_oracle_notices_a_lost_batch_and_a_changed_one() -> None:
    log, _, _ = damaged_log(3)
    oracle = Oracle(log, TrackedBytes.of(log))
    kept = oracle.rows_of_scan(ks.scan_batches(oracle.data))
    assert list(oracle.losses(kept, log.highest)) == []
    assert any("VIOLATION lost" in one for one in oracle.losses(kept[:-1], log.highest))
    assert any("VIOLATION prefix" in one for one in oracle.losses(kept[1:], log.highest))
    stranger = dataclasses.replace(kept[1], row=None, position=kept[1].position + 1)
    oracle.damaged.origin[:] = -1
    assert any("VIOLATION stranger" in one for one in oracle.strangers([stranger], []))
    repair = FieldRepair(kept[0].position, 0, "base_offset", 1, 2)
    oracle = Oracle(log, TrackedBytes.of(log))
    assert any("VIOLATION changed" in one for one in oracle.changes(kept, [repair]))
    damaged = TrackedBytes.of(log)
    damaged.put(0, b"\x01")
    assert any("VIOLATION certain" in one for one in Oracle(log, damaged).changes(kept, [repair]))
