"""Write the man pages of the commands into a folder: python docs/man_pages.py FOLDER."""

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

import kafkascan
from kafkascan.cli.commands import cli

target = Path(sys.argv[1])
target.mkdir(parents=True, exist_ok=True)
context = click.Context(cli, info_name="kafkascan")
# Commands are imported when they are looked up; the generator knows only those that are listed.
for name in cli.list_commands(context):
    command = cli.get_command(context, name)
    assert command is not None
    cli.add_command(command)
write_man_pages("kafkascan", cli, version=kafkascan.__version__, target_dir=str(target))
