"""Follow logs from a command: rounds over all logs until a signal arrives."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

import click

from kafkascan.cli.output import RowOutput
from kafkascan.cli.run import FindingReport, Run
from kafkascan.format.errors import KafkaScanError
from kafkascan.io.folders import DiskFolder
from kafkascan.logs.log_follower import FollowedBatches, LogFollower
from kafkascan.logs.queries.segment_inputs import SegmentInput
from kafkascan.logs.record_scan import Isolation

# A batch is shown about this long after the broker has written it.
_PAUSE_SECONDS = 0.02

Followed = Iterator[tuple[SegmentInput, FollowedBatches]]


@dataclass
class _StopFlag:
    """Whether to stop; a signal handler may set it at any time."""

    is_set: bool = False


@dataclass
class _FollowedLog:
    """A log that a command follows."""

    first: SegmentInput
    follower: LogFollower
    report: FindingReport = field(default_factory=FindingReport)

    def poll(self) -> Iterator[FollowedBatches]:
        """Yield the new batches that a consumer gets."""
        try:
            yield from self.follower.poll()
        except (KafkaScanError, OSError) as error:
            self.follower.is_ended = True
            self.report.add_unreadable(str(self.first.partition.path), error)
        for message in self.follower.messages:
            self.report.add(message)
        self.follower.messages.clear()


def require_followable(output: RowOutput, inputs: Sequence[SegmentInput]) -> None:
    """
    Refuse to follow what does not grow, or into a file that is written at the end.

    Raises
    ------
    click.UsageError
    """
    if output.path is not None:
        raise click.UsageError("--follow writes to stdout, not to --output")
    for one in inputs:
        name = one.segment.name
        if name.base_offset is None or name.state is not None or name.kind != "log":
            raise click.UsageError(f"--follow: {one.path} is not a segment of a log")
        if not isinstance(one.segment.folder, DiskFolder):
            raise click.UsageError(f"--follow: {one.path} is not on a disk, and does not grow")


def follow(run: Run, inputs: Sequence[SegmentInput], *, isolation: Isolation) -> Iterator[Followed]:
    """
    Yield rounds of new batches until SIGINT or SIGTERM; the first has all that there are now.

    Parameters
    ----------
    run : Run
    inputs : sequence of SegmentInput
        The segments now; of each log, the first one is where it begins.
    isolation : str
        As in `LogFollower`.
    """
    logs = [
        _FollowedLog(
            one,
            LogFollower(
                one.partition,
                from_offset=one.base_offset,
                isolation=isolation,
                memory_map=one.memory_map,
                verify=False,  # the command verifies what it shows, if it is asked to
            ),
        )
        for one in _first_of_logs(inputs)
    ]
    with _stopped_by_signals() as stopped:
        while logs and not stopped.is_set:
            yield _round(logs, stopped)
            for log in logs:
                run.print_report(log.report)
            logs = [log for log in logs if not log.follower.is_ended]
            sys.stdout.flush()
            time.sleep(_PAUSE_SECONDS)


def _first_of_logs(inputs: Sequence[SegmentInput]) -> list[SegmentInput]:
    first: dict[str, SegmentInput] = {}
    for one in inputs:
        first.setdefault(str(one.partition.path), one)
    return list(first.values())


def _round(logs: Sequence[_FollowedLog], stopped: _StopFlag) -> Followed:
    for log in logs:
        for followed in log.poll():
            if stopped.is_set:
                return
            yield replace(log.first, segment=followed.segment), followed


@contextmanager
def _stopped_by_signals() -> Iterator[_StopFlag]:
    """Set a flag on SIGINT and SIGTERM, so that no row is cut off."""
    stopped = _StopFlag()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.is_set = True

    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {
        number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
