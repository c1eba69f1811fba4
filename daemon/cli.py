"""The command line for people: look at a session file, run a recording again. The daemon itself is `server`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click
import msgspec
from rich.console import Console

from daemon import __version__
from daemon.folds import show_folds
from daemon.replay import replay as run_again
from daemon.show import UnknownLeafError, show
from state.shake.planner import PROFILES

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pi-contextd")
def cli() -> None:
    """Context windows and folds for the Pi coding agent.

    Without a command this is the daemon: it speaks JSON-RPC on stdin and stdout, and Pi's extension starts it.
    """


@cli.command()
@click.argument("file", type=_FILE)
@click.option("--leaf", metavar="ID", help="Show the branch of this entry instead of the file's last one.")
@click.option("--all", "everything", is_flag=True, help="Show every entry of long stretches.")
@click.option("--shake", "folds", is_flag=True, help="Show instead what /shake would fold, scope by scope.")
@click.option("--profile", type=click.Choice(list(PROFILES)), default="default", show_default=True, help="For --shake.")
def inspect(file: Path, *, leaf: str | None, everything: bool, folds: bool, profile: str) -> None:
    """Show the tree of a session FILE: windows, archives, markers, notes; or what could be folded."""
    try:
        Console().print(
            show_folds(file, leaf=leaf, profile=PROFILES[profile], everything=everything)
            if folds
            else show(file, leaf=leaf, everything=everything)
        )
    except UnknownLeafError as error:
        raise click.BadParameter(str(error), param_hint="--leaf") from None


@cli.command()
@click.argument("file", type=_FILE)
def replay(file: Path) -> None:
    """Run a recording (PI_CONTEXTD_RECORD) again and report the first answer that differs."""
    try:
        found = anyio.run(run_again, file.read_bytes())
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"not a recording: {error}", param_hint="FILE") from None
    if found is None:
        click.echo(f"{file.name}: every answer is as recorded")
        return
    click.echo(f"{file.name}: line {found.line} differs at {found.path}")
    click.echo(f"  recorded  {found.recorded!r}")
    click.echo(f"  replayed  {found.replayed!r}")
    sys.exit(1)
