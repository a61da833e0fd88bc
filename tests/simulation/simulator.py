"""
One seed: a verb, a log, its damage, a fault, and what must hold afterwards.

The verb runs with its file operations recorded. Then the process was killed, or the power went, at
some point of the trace, or calls were refused. What must hold then: every file is the old or the
new one, no batch is lost, a broker loads the logs, success was not said of what is not there, and
the verb, run again, completes and leaves nothing else behind.
"""

from __future__ import annotations

import errno
import functools
import random
import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import kafkascan as ks
from kafkascan.broker_state.offset_checkpoints import CheckpointWarning
from tests.simulation.disk import Disk, Operation, after_kill, after_power_loss
from tests.simulation.recording import Fault, recorded
from tests.simulation.verbs import NOW, VERBS, RefusedError, Verb, build
from tests.support.files import contents

Files = dict[str, bytes]
_SHARED_MEMORY = Path("/dev/shm")
_PLACE = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
LOGS = 24
"""Number of damaged logs per verb."""

IGNORED = re.compile(r".*\.bak\d*|(.*/)?\.lock")
BACKUP = re.compile(r".*\.bak\d*")
TEMPORARY = re.compile(
    r"(.*/)?(\.[^/]+\.\d\.part|\.[^/]*\.rewriting|\.lock|\d{20}\.\w+\.(cleaned|swap))"
    r"|(.*/)?kafkascan-0\.6b61666b617363616e[0-9a-f]{14}-delete(/.*)?"
)
_EXPECTED = (ks.KafkaScanError, OSError, RefusedError)


class ViolationError(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Run:
    """A run of a verb without faults: the disk before it, its operations, the files around it."""

    verb: Verb
    start: Disk
    trace: tuple[Operation, ...]
    before: Files
    after: Files
    refusal: str | None
    unloadable: set[str]


@functools.cache
def run_once(name: str, log: int) -> Run:
    """Run a verb on a log without a fault."""
    verb = VERBS[name]
    with tempfile.TemporaryDirectory(dir=_PLACE) as folder:
        root = Path(folder, "root")
        root.mkdir()
        build(root, random.Random(log))
        before, refusal, unloadable = contents(root), None, _unloadable(root)
        with recorded(root) as recorder:
            try:
                verb.act(root)
            except _EXPECTED as error:
                refusal = type(error).__name__
        trace, after = tuple(recorder.trace), contents(root)
        found = Run(verb, recorder.start, trace, before, after, refusal, unloadable)
        replayed = root.with_name("replayed")
        after_kill(found.start, trace).write_to(replayed)
        require(contents(replayed) == after, "the trace misses an operation")
    return found


def simulate(seed: int) -> str:
    """Try one seed; return what it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # it cannot be opened
        return _simulated(seed)


def _simulated(seed: int) -> str:
    dice = random.Random(seed)
    name, log = dice.choice([*VERBS]), dice.randrange(LOGS)
    whole = run_once(name, log)
    fault = dice.choice(("kill", "power", "power", "error"))
    what = f"{name} on log {log}, {fault}"
    with tempfile.TemporaryDirectory(dir=_PLACE) as folder:
        root = Path(folder, "root")
        try:
            if fault == "error":
                what += f" {_refuse(whole, root, dice)}"
            else:
                at = min(dice.randint(0, len(whole.trace) + 2), len(whole.trace))
                what += f" at {at} of {len(whole.trace)}"
                trace = list(whole.trace[:at])
                lost = (
                    after_kill
                    if fault == "kill"
                    else functools.partial(after_power_loss, dice=dice)
                )
                lost(whole.start, trace).write_to(root)
                if at == len(whole.trace) and whole.refusal is None:
                    _require_same(contents(root), whole.after, "after the verb has ended")
            if whole.verb.goes_on and fault == "error":
                _remove_outputs(root)
            _check_files(whole, contents(root))
            require(whole.unloadable >= _unloadable(root), "a broker does not start")
            _run_again(whole, root)
        except ViolationError as error:
            raise ViolationError(f"{what}: {error}") from error
    return what


def _refuse(whole: Run, root: Path, dice: random.Random) -> str:
    """Run the verb with calls that fail, and maybe a power loss later."""
    whole.start.write_to(root)
    kind = dice.choice((errno.ENOSPC, errno.EIO, errno.EMFILE))
    fault = Fault(kind, dice.randrange(1 + len(whole.trace)), dice.choice((1, 3, 10**9)))
    says_done = True
    with recorded(root, fault) as recorder:
        try:
            whole.verb.act(root)
        except _EXPECTED:
            says_done = False
    if recorder.failed and says_done and whole.refusal is None:
        _require_same(contents(root), whole.after, "the verb says that it did all")
    if dice.random() < 0.5:
        shutil.rmtree(root)
        after_power_loss(recorder.start, list(recorder.trace), dice).write_to(root)
    return f"{errno.errorcode[kind]} at call {fault.at}, {fault.calls} times"


def _remove_outputs(root: Path) -> None:
    """Remove what a verb wrote that leaves out what it cannot read, and says so."""
    for path in root.glob("out*"):
        shutil.rmtree(path)
    (root / "out").mkdir()


# ---- what must hold --------------------------------------------------------------------------


def require(holds: bool, message: str) -> None:
    """Raise `ViolationError` unless something holds."""
    if not holds:
        raise ViolationError(message)


def _check_files(whole: Run, files: Files) -> None:
    """Every file is the old or the new one, or has a name that says what it is."""
    for path, data in files.items():
        if BACKUP.fullmatch(path) or TEMPORARY.fullmatch(path):
            continue
        require(path in whole.before or path in whole.after, f"{path} is no file of this run")
        known = (whole.before.get(path), whole.after.get(path))
        require(data in known, f"{path} is neither the old nor the new file")
    for path in whole.before.keys() & whole.after.keys():
        # A broker that starts gives a .swap file its name.
        is_there = path in files or f"{path}.swap" in files
        require(is_there or _is_missing_side_file(path, files), f"{path} is gone")
    if not (whole.verb.is_in_place and whole.verb.drops):
        _require_batches(whole, files)
    if whole.verb.rewrites:
        _require_valid_side_files(whole, files)


def _is_missing_side_file(path: str, files: Files) -> bool:
    """Return whether a side file is missing in a folder with the mark of a rewrite."""
    folder, _, name = path.rpartition("/")
    is_marked = any(one.startswith(f"{folder}/.") and one.endswith(".rewriting") for one in files)
    return is_marked and not name.endswith(".log")


def _require_valid_side_files(whole: Run, files: Files) -> None:
    """A broker believes the side files that exist: they are those of their log."""
    for path in files:
        stem, _, kind = path.rpartition(".")
        log = f"{stem}.log"
        if kind in ("index", "timeindex") and log in whole.after:
            pair = files[log], files[path]
            known = [(one[log], one.get(path)) for one in (whole.before, whole.after)]
            require(pair in known, f"{path} belongs to another log")


def _require_batches(whole: Run, files: Files) -> None:
    """No batch is lost: that of an old log is in the old or in the new log, or in a backup."""
    kept = b"".join(data for path, data in files.items() if not TEMPORARY.fullmatch(path))
    for path, old in whole.before.items():
        is_old_or_new = path in files and files[path] in (old, whole.after.get(path))
        if path.endswith(".log") and not (is_old_or_new and _keeps_offsets(old, files[path])):
            for batch in _intact(old):
                require(batch in kept, f"a batch of {path} is lost")


def _keeps_offsets(old: bytes, new: bytes) -> bool:
    return old == new or len(_intact(new)) >= len(_intact(old))


@functools.lru_cache(1 << 12)
def _intact(log: bytes) -> list[bytes]:
    """Return the batches of a log that have the right checksum."""
    scan = ks.scan_batches(log, on_corrupt="stop")
    is_intact = ks.verify_crcs(log, scan.batches)
    return [
        log[one["position"] : one["position"] + 12 + one["batch_length"]]
        for one in scan.batches[is_intact]
    ]


def _unloadable(root: Path) -> set[str]:
    """Return the errors after which a broker does not start."""
    done = ks.recover(root / "data", now_ms=NOW, threads=1)
    return {
        str(one.error).removeprefix(f"{root}/") for one in done.partitions if one.error is not None
    }


def _run_again(whole: Run, root: Path) -> None:
    """The verb completes, and leaves nothing else behind."""
    try:
        whole.verb.act(root)
    except FileExistsError:  # it was complete
        require(not whole.verb.is_in_place, "the verb cannot be run again")
    except _EXPECTED as error:
        require(
            whole.refusal == type(error).__name__, f"run again: {type(error).__name__}: {error}"
        )
    _require_same(contents(root), whole.after, "after another run")


def _require_same(files: Files, expected: Files, when: str) -> None:
    files, expected = (
        {path: data for path, data in one.items() if not IGNORED.fullmatch(path)}
        for one in (files, expected)
    )
    differing = sorted(
        path for path in files.keys() | expected.keys() if files.get(path) != expected.get(path)
    )
    require(not differing, f"{when}, these files differ: {', '.join(differing[:3])}")
