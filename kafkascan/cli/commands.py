"""The command group, and the exit of a command: exit codes, errors, interrupts."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from kafkascan.cli.exit_codes import EXIT_INTERRUPTED, EXIT_USAGE, exit_code_of, print_message
from kafkascan.cli.signals import exit_code_of_signal
from kafkascan.cli.verb_table import VERBS, VERBS_BY_TASK

# Words that other tools have, and the command.
_MEANT = {
    "ls": "info", "list": "info", "topics": "metadata", "transactions": "txns", "check": "audit",
    "fix": "recover", "repair": "recover", "consume": "records", "cat": "records",
    "export": "records --output FILE.parquet", "dump": "dump-log", "version": "--version",
}  # fmt: skip


class VerbGroup(click.Group):
    """The commands of `VERBS`, each imported when it is looked up; the help lists them by task."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the module of a command; return the command, or None if there is none."""
        verb = VERBS.get(name)
        if verb is None:
            return None
        module = importlib.import_module(f"kafkascan.cli.verbs.{verb.module}")
        command = getattr(module, verb.attribute)
        assert isinstance(command, click.Command)
        command.short_help = verb.summary
        # \b keeps click from joining the lines.
        lines = [f"  kafkascan {example}" for example in verb.examples]
        command.epilog = "\n".join(["\b", "Examples:", *lines])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument, or fail with a similar name."""
        name = args[0]
        if name not in VERBS and not ctx.resilient_parsing:
            from kafkascan.format.suggestions import suggestion  # not at each start

            meant = _MEANT.get(name)
            if hint := f"; did you mean {meant!r}?" if meant else suggestion(name, VERBS):
                raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that a word may become, without importing commands."""
        verbs = [one for one in VERBS.values() if one.name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(one.name, help=one.summary) for one in verbs), *options]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by task."""
        column = max(map(len, VERBS))
        for task, verbs in VERBS_BY_TASK.items():
            with formatter.section(task):
                formatter.write_dl([(verb.name.ljust(column), verb.summary) for verb in verbs])


def _print_version(context: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    """Print the version; finding it reads the installed package, so only on request."""
    if is_wanted:
        import kafkascan

        click.echo(f"kafkascan, version {kafkascan.__version__}")
        context.exit()


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
    help="Show the version and exit.",
)  # fmt: skip
def cli() -> None:
    """Read Apache Kafka's segment files directly: no broker, no JVM.

    Commands read segment files (.log, also .log.deleted, .log.cleaned and .log.swap files, and
    KRaft's .checkpoint files), partition directories, a broker's data directories, tar archives
    of directories, which are not unpacked, and URLs (s3://, gs://, az://, https://; credentials
    come from the environment). Of directories and archives, they read the
    segments that a broker would load. With --all, commands about files (info, verify, batches,
    records, index check) read every segment file.

    `kafkascan help COMMAND` explains a command. Rows go to stdout, findings to stderr. Exit
    codes: 0 no findings; 1 findings, such as damage or a torn tail; 2 wrong usage; 3 unreadable
    input, or nothing there to read; 70 a bug.
    """


def invoke(arguments: Sequence[str]) -> int:
    """Run the command line; returns its exit code."""
    return exit_code_of(lambda: _run(list(arguments)))


def _run(arguments: list[str]) -> int | None:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        code: int | None = cli.main(arguments, prog_name="kafkascan", standalone_mode=False)
    except click.ClickException as error:
        if exit_code_of_signal() is None:
            shown = io.StringIO()
            error.show(shown)
            print_message(shown.getvalue().rstrip("\n"))
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED
    return code
