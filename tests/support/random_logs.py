"""Random logs by seed: all kinds of batches, ascending offsets, transactions."""

from __future__ import annotations

import random
from dataclasses import replace

import kafkascan as ks
from kafkascan.records.control import ControlRecordType
from tests.support.batch_jobs import MAX_INT, T0, BatchJob, Control, Step, build_here, random_job


def random_log(
    seed: object,
    *,
    batches: int,
    mixes_magics: bool = False,
    ends_transactions: bool = False,
    has_one_leader: bool = False,
) -> bytes:
    """
    Return a log of valid batches that depends on the seed alone.

    Parameters
    ----------
    seed : object
    batches : int
    mixes_magics : bool
        Whether it contains messages of magic 0 and 1.
    ends_transactions : bool
        Whether every transaction ends.
    has_one_leader : bool
        Whether every batch has leader epoch 0.
    """
    choice = random.Random(repr(("log", seed)))
    producers = _Producers(choice)
    offset, time, epoch = choice.choice((0, 0, 7, 2**31)), T0, choice.choice((0, 3))
    log = b""
    number = 0
    while number < batches or (ends_transactions and producers.have_open_transactions):
        job = producers.marker() if number >= batches else None
        job = job or _job(choice, (seed, number), producers, mixes_magics=mixes_magics)
        number += 1
        epoch = 0 if has_one_leader else epoch + (choice.random() < 0.05)
        time += choice.choice((0, 10, 1000, 60_000))
        built = build_here(_placed(job, offset, epoch, time))
        assert built.data, (built.error, job)
        log += built.data
        offset = int(ks.batches.next_offset(ks.scan_batches(built.data).batches)[-1])
        offset += choice.choice((0, 0, 0, 1, 50))
        if choice.random() < 0.01:
            offset += 2**30
    return log


def _placed(job: BatchJob, offset: int, epoch: int, time: int) -> BatchJob:
    """Return the same batch with other offsets and timestamps."""
    steps = tuple(
        replace(
            step, timestamp=step.timestamp if step.timestamp < 0 else time + step.timestamp % 99
        )
        if isinstance(step, Control)
        else replace(
            step,
            timestamp=step.timestamp if step.timestamp < 0 else time + step.timestamp % 5000,
            offset=None if step.offset is None else step.offset - job.base_offset + offset,
        )
        for step in job.steps
    )
    stamped = None if job.log_append_time is None else time
    return replace(
        job,
        base_offset=offset,
        partition_leader_epoch=epoch if job.magic == 2 else -1,
        log_append_time=stamped,
        write_limit=MAX_INT,
        steps=steps,
    )


def _moved(step: Step | Control, by: int, time: int) -> Step | Control:
    if step.timestamp >= 0:
        step = replace(step, timestamp=time + step.timestamp % 5000)
    if isinstance(step, Control) or step.offset is None:
        return step
    return replace(step, offset=step.offset + by)


class _Producers:
    """Producers and their open transactions."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self._open: set[int] = set()
        self._sequences: dict[int, int] = {}

    def fields(self) -> dict[str, int | bool]:
        """Return the producer fields of the next batch."""
        producer = self._choice.randrange(30)
        is_transactional = producer % 2 == 0
        if is_transactional:
            self._open.add(producer)
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 100
        return {
            "producer_id": producer,
            "producer_epoch": 1,
            "base_sequence": sequence,
            "is_transactional": is_transactional,
        }

    @property
    def have_open_transactions(self) -> bool:
        """Whether any producer has an open transaction."""
        return bool(self._open)

    def marker(self) -> BatchJob | None:
        """Return a marker that ends an open transaction, or None."""
        if not self._open:
            return None
        producer = self._choice.choice(sorted(self._open))
        self._open.remove(producer)
        kind = self._choice.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT))
        return BatchJob(
            producer_id=producer,
            producer_epoch=1,
            is_transactional=True,
            is_control=True,
            steps=(Control(T0, kind, {"coordinator_epoch": 2}),),
        )


def _job(
    choice: random.Random, seed: object, producers: _Producers, *, mixes_magics: bool
) -> BatchJob:
    if choice.random() < 0.2 and (marker := producers.marker()) is not None:
        return marker
    number = 0
    while True:
        job = random_job((seed, number), is_sound=True)
        number += 1
        if not job.is_control and (job.magic == 2 or mixes_magics):
            break
    fields: dict[str, int | bool] = {
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "is_transactional": False,
    }
    if job.magic == 2 and choice.random() < 0.5:
        fields = producers.fields()
    return replace(job, delete_horizon_ms=None, **fields)
