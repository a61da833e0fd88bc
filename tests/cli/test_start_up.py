"""What the program loads before it has work to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import click
import pytest

from kafkascan.cli.record_cells import DECODERS
from kafkascan.cli.shared_options import FORMATS, TYPED
from kafkascan.cli.verb_table import VERBS
from kafkascan.cli.verbs import record_commands, rewrite_commands, state_commands
from kafkascan.format.layout import CompressionType
from kafkascan.internal_topics.consumer_groups import Groups
from kafkascan.internal_topics.metadata.metadata_reading import Metadata
from kafkascan.internal_topics.remote_segments import RemoteSegments
from kafkascan.internal_topics.share_states import ShareState
from kafkascan.internal_topics.transaction_states import TransactionStates
from kafkascan.tables.writers import TEXT_WRITERS
from tests.support.command_line import DATA
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS

_LOADED = """
import sys
from kafkascan.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


_FROZEN = """
import atexit, gc, sys
from kafkascan.cli import main
atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())))
main(["--version"])
"""

# Commands of groups.
SUBCOMMANDS = ("index check", "schemas list", "schemas usage", "schemas export", "spark export")
# What no command needs that reads a log and prints its rows; a notebook, a store, a terminal's
# progress, a wrong name, an archive or damage does.
UNNEEDED = {
    "pyarrow", "pandas", "polars", "pyspark", "matplotlib", "jinja2", "rich.console",
    "rich.progress", "tempfile",
    "asyncio", "email", "http", "importlib.metadata", "concurrent.futures", "logging",
    "html", "difflib", "shutil", "kafkascan.io.archives", "kafkascan.tiered.tier_listing",
    "kafkascan.schemas.plain_json", "kafkascan.cli.following",
    "kafkascan.batches.resyncing.resync", "kafkascan.batches.resyncing.gaps",
}  # fmt: skip
LOGS = {
    "transactions-0": (
        "info",
        "batches",
        "verify",
        "records",
        "count",
        "txns",
        "producers",
        "audit",
    ),
    "__consumer_offsets-0": ("groups",),
    "__transaction_state-0": ("txn-state",),
    "__cluster_metadata-0": ("metadata",),
    "kafka-4.4.0-schemas/data/_schemas-0": ("schemas",),
}


def started(*arguments: object, **environment: str) -> tuple[str, bool]:
    """Return the output of a command, and whether it has loaded NumPy."""
    output, modules = loaded(*arguments, **environment)
    return output, "numpy" in modules


def loaded(*arguments: object, **environment: str) -> tuple[str, set[str]]:
    """Return the output of a command, and the modules that it has loaded."""
    run = subprocess.run(
        [sys.executable, "-c", _LOADED, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return run.stdout, set(run.stderr.splitlines()[-1].split())


def completed(words: str) -> tuple[str, bool]:
    variables = {"COMP_WORDS": f"kafkascan {words}", "COMP_CWORD": "1"}
    return started(_KAFKASCAN_COMPLETE="bash_complete", **variables)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_program_says_what_it_is_without_numpy(option: str) -> None:
    output, has_numpy = started(option)
    assert output
    assert not has_numpy


@pytest.mark.parametrize("verb", [*VERBS, *SUBCOMMANDS])
def test_the_help_of_a_command_is_printed_without_numpy(verb: str) -> None:
    output, has_numpy = started(*verb.split(), "--help")
    assert output.startswith(f"Usage: kafkascan {verb} ")
    assert not has_numpy


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (state_commands.groups, Groups.schemas),
        (state_commands.txn_state, [*TransactionStates.schemas, "contradictions"]),
        (state_commands.share_state, ShareState.schemas),
        (state_commands.metadata, [*Metadata.schemas, "changes"]),
        (state_commands.remote_segments, RemoteSegments.schemas),
        (rewrite_commands.convert, [one.display_name for one in CompressionType]),
        (record_commands.records, [*DECODERS, TYPED]),
    ],
)
def test_choices_of_options_are_what_the_library_has(
    command: click.Command, answer: Iterable[str]
) -> None:
    choices = [one.type.choices for one in command.params if isinstance(one.type, click.Choice)]
    assert set(answer) in map(set, choices)
    assert FORMATS == ("table", *TEXT_WRITERS)


def test_completion_of_commands_loads_no_numpy() -> None:
    assert completed("re") == ("plain,records\nplain,remote-segments\nplain,report\n"
                               "plain,recover\nplain,restore\nplain,restamp\n", False)  # fmt: skip
    assert completed("--ver") == ("plain,--version\n", False)
    output, _ = completed("")
    assert output.splitlines() == [f"plain,{name}" for name in VERBS]


def test_completion_of_paths_and_columns() -> None:
    def words(text: str) -> list[str]:
        variables = {"COMP_WORDS": text, "COMP_CWORD": str(len(text.split()) - 1)}
        output, _ = started(_KAFKASCAN_COMPLETE="bash_complete", **variables)
        return output.splitlines()

    assert words("kafkascan info /tm") == ["file,/tm"]
    assert words("kafkascan info --output x") == ["file,x"]
    assert words("kafkascan info --columns topic,siz") == ["plain,topic,size"]
    assert words("kafkascan info --sort siz") == ["plain,size"]


def test_the_exit_of_a_command_searches_no_objects_for_cycles() -> None:
    command = [sys.executable, "-c", _FROZEN]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    frozen, others = map(int, run.stdout.splitlines()[-1].split())
    assert frozen > 1_000 > others


def test_a_command_that_reads_a_file_loads_numpy() -> None:
    assert started("count", DATA / "transactions-0")[1]


@pytest.mark.parametrize(
    ("verb", "log"), [(verb, log) for log, verbs in LOGS.items() for verb in verbs]
)
@pytest.mark.skipif("KAFKASCAN_COVERAGE" in os.environ, reason="coverage loads modules itself")
def test_a_command_loads_only_what_it_needs(verb: str, log: str) -> None:
    output, modules = loaded(verb, GOLDEN / log if "/" in log else DATA / log)
    assert output
    assert not modules & UNNEEDED


@pytest.mark.parametrize("verb", ["info", "verify", "count", "txns", "producers", "audit"])
@pytest.mark.skipif("KAFKASCAN_COVERAGE" in os.environ, reason="coverage loads modules itself")
def test_a_command_that_decompresses_nothing_loads_no_codec(verb: str) -> None:
    _, modules = loaded(verb, DATA / "transactions-0")
    assert not modules & {"cramjam", "isal", "lz4", "snappy", "xxhash", "zstandard"}
