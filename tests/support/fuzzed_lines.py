"""Command lines by chance: every command, any options, odd inputs. Each ends in a sentence."""

from __future__ import annotations

import os
import random
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from kafkascan.cli.commands import cli
from kafkascan.cli.exit_codes import EXIT_CLEAN, EXIT_UNREADABLE
from tests.support.command_line import run
from tests.support.paths import GOLDEN

_DATA = GOLDEN / "kafka-4.4.0" / "data"
_LOG = f"transactions-0/{5:020}"
# `--follow` waits for an end that does not come.
_NOT_TRIED = {"--follow", "--help", "--version"}
_TEXTS = (
    "", "0", "-1", "1", "7", "100", "1e400", "nan", "2147483648", "9223372036854775807",
    "99999999999999999999", "all", "a,b", "key", "offset,key", "orders", "transactions", "-1h",
    "2025", "2025-11-23T10:00:00Z", "1763902387", "1763902387000", "kafka", "none", "zstd",
    "\x1b[31m", "é\udcff", "x=y", "A" * 22, "{", "[", "key == 'a'", "a" * 5000, "\u202e",
)  # fmt: skip
_SPARK_VALUES = {
    "--master": ("local[1]", "spark://127.0.0.1:1", "spark://host:x", "yarn"),
    "--remote": ("sc://127.0.0.1:1", "sc://", "nonsense"),
    "--conf": ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=x", "spark.ui"),
    "--option": (
        "topics=orders", "topics=transactions,compressed", "partitions=0", "partitions=-1",
        "where=producer_id == 7", "where=(", "maxPartitionBytes=1000", "maxPartitionBytes=0",
        "mode=FAILFAST", "mode=nothing", "verify=true", "verify=maybe", "view=records",
        "storageOptions={", "startingOffsets=earliest", "columns=key", "topcs=a", "=", "x=",
    ),
}  # fmt: skip
_URLS = (
    "s3://", "gs://b/../../x", "file:///nowhere", "ftp://user:secret@h/x", "memory://x/y",
    "http://127.0.0.1:1/x?sig=secret", "nonsense://x", "https://user:secret@127.0.0.1:1/",
)  # fmt: skip


def _commands(group: click.Group, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*prefix, name))
        else:
            yield *prefix, name


def _command(names: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


COMMANDS = list(_commands(cli))


def _inputs(folder: Path) -> list[str]:
    """Write odd files and folders; return their paths."""
    data = Path(shutil.copytree(_DATA, folder / "data"))
    log = data / f"{_LOG}.log"
    odd = folder / "odd"
    odd.mkdir()
    contents = {
        "empty.log": b"", "zeros.log": bytes(5000), f"{0:020}.log": log.read_bytes()[:-3],
        "nested.json": b"[" * 100_000, "meta.properties": b"",
        ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":1e400}',
        "partition.metadata": b"version: 9\n", f"{0:020}.index": b"\xff" * 17,
        f"{0:020}.snapshot": b"\0\1" * 9, "leader-epoch-checkpoint": b"0\n9999999999\n",
        "recovery-point-offset-checkpoint": b"0\n1\nx 0\n",
        "noise": random.Random(1).randbytes(3000),
    }  # fmt: skip
    for name, content in contents.items():
        (odd / name).write_bytes(content)
    (folder / "loop").mkdir()
    (folder / "loop" / "self-0").symlink_to("self-0")
    (folder / "nothing").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    with tarfile.open(folder / "data.tar", "w") as tar:
        tar.add(data / "transactions-0", "transactions-0")
    paths = [data, data / "transactions-0", log, log.with_suffix(".index"), folder / "data.tar",
             odd, *odd.iterdir(), folder / "loop", folder / "nothing", folder / "dangling",
             folder / "missing", *data.glob("__*")]  # fmt: skip
    return [os.fspath(path) for path in paths]


def _line(
    names: tuple[str, ...], dice: random.Random, inputs: list[str], outputs: Path
) -> list[str]:
    line = [*names]
    for option in _command(names).params:
        if isinstance(option, click.Argument):
            count = dice.choice((1, 1, 1, 2)) if option.nargs == -1 else int(option.required)
            line += [dice.choice([*inputs, *inputs, *_URLS]) for _ in range(count)]
            continue
        chance = 0.6 if option.required else 0.12
        if dice.random() < chance and not _NOT_TRIED & set(option.opts):
            line.append(dice.choice([*option.opts, *option.secondary_opts]))
            if isinstance(option, click.Option) and not option.is_flag:
                line.append(_value(option, dice, inputs, outputs))
    return line


def _value(option: click.Option, dice: random.Random, inputs: list[str], outputs: Path) -> str:
    if isinstance(option.type, click.Choice) and dice.random() < 0.8:
        return str(dice.choice(list(option.type.choices)))
    if {"--output", "-o", "--report"} & set(option.opts) and dice.random() < 0.8:
        return str(outputs / dice.choice(("out.csv", "out.parquet", "out.jsonl", "no/out.json")))
    chosen = next((_SPARK_VALUES[name] for name in option.opts if name in _SPARK_VALUES), ())
    return dice.choice([*_TEXTS, *_TEXTS, dice.choice(inputs), *5 * chosen])


def try_command_lines(
    commands: Sequence[tuple[str, ...]], seeds: range, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    """Run a command line of each seed: each ends in an exit code, and says why."""
    inputs, outputs = _inputs(folder), folder / "outputs"
    outputs.mkdir()
    patch.chdir(outputs)  # a value may be the name of an output
    failed = []
    for seed in seeds:
        dice = random.Random(seed)
        line = _line(dice.choice(commands), dice, inputs, outputs)
        done = run(*line)
        says = done.stderr.strip() or done.stdout or {"-o", "--output"} & set(line)
        is_silent = done.returncode != EXIT_CLEAN and not says
        if (
            not EXIT_CLEAN <= done.returncode <= EXIT_UNREADABLE
            or "Traceback" in done.stderr
            or "secret" in done.stdout + done.stderr
            or is_silent
        ):
            failed.append(f"seed {seed}: {line}: {done.returncode}: {done.stderr[-600:]}")
    assert not failed, "\n\n".join(failed)
