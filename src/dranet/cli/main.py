"""The command ``dranet``, which is also ``kubectl dranet``.

Commands are imported only when they run: the daemon must not pay for the command line's libraries, and a person should
not wait for commands they did not call. Container arguments of the reference driver (flags only, no command) start the
daemon.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

COMMANDS = {
    "inventory": "what is on this node",
    "status": "what is published, in use and tainted in the cluster",
    "plan": "which pod will land where, with which devices",
    "explain": "why a claim got its devices, or cannot get any",
    "lint": "mistakes in manifests, before a job burns money",
    "topo": "distances between GPUs and NICs",
    "suggest": "the claim template that gives aligned devices",
    "shape": "list, show and capture machine shapes",
    "report": "what a benchmark run should have given, and why it did not",
    "check": "is this node's network fit for a job",
    "pod-info": "inside a pod: which cards it has",
    "serve": "a page that shows machines, pods and alignment",
    "demo": "see it all at work on this machine",
    "init": "the commands a cloud needs for this driver",
    "enable-nri": "switch the NRI of a node's containerd on",
    "completion": "what makes a shell complete commands, options and shapes",
}

FOR_DEVELOPERS = {"golden": "compare with recorded answers of the real scheduler"}
"""Commands that work and are not listed."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of both executables."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and (args[0] == "run" or _reference_style(args)):
        sys.exit(_run_driver(args[1:] if args[0] == "run" else args))
    try:
        load_group()(args=args, prog_name="dranet")
    finally:
        _flush()


def _run_driver(args: Sequence[str]) -> int:
    from dranet.cli.driver_libraries import require_driver_libraries
    from dranet.model.errors import DranetError

    try:
        require_driver_libraries("dranet run")
    except DranetError as error:
        print(f"dranet: {error}", file=sys.stderr)
        return 2
    from dranet.driver.serving.daemon import main as run

    return run(args)


def _flush() -> None:
    """What is printed reaches the other side now, or it is said that it did not: a full disk is no traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _not_written(error)


def _not_written(error: OSError) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing is left to fail at the end
    if isinstance(error, BrokenPipeError):
        sys.exit(141)
    print(f"Error: standard output cannot be written: {error.strerror}", file=sys.stderr)
    sys.exit(1)


def _reference_style(args: Sequence[str]) -> bool:
    """Flags with no command are the reference driver's container arguments."""
    return args[0].startswith("-") and args[0] not in {"-h", "--help", "--version"}


def load_command(name: str) -> click.Command:
    """One command, from the file of its name."""
    module = name.replace("-", "_")
    command: click.Command = getattr(importlib.import_module(f"dranet.cli.{module}"), module)
    return command


def load_group() -> click.Group:
    """The command with all commands below it; its library is loaded here."""
    import click

    from dranet import __version__
    from dranet.model.errors import DranetError
    from dranet.model.near_names import did_you_mean

    class OneLine(click.ClickException):
        """A wrong call as one line like every other error; the library would print the usage above it."""

        exit_code = 2

        def __init__(self, error: click.UsageError) -> None:
            command = error.ctx.command_path if error.ctx else "dranet"
            said = " ".join(error.format_message().split()).removesuffix(".")
            super().__init__(f"{said} (see {command} --help)")

    class Lazy(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return ["run", *COMMANDS]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in {**COMMANDS, **FOR_DEVELOPERS}:
                return None
            return load_command(cmd_name)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if args and self.get_command(ctx, args[0]) is None:
                raise click.UsageError(f"no such command {args[0]!r}{did_you_mean(args[0], ['run', *COMMANDS])}", ctx)
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([("run", "the driver on a node (see dranet run --help)"), *COMMANDS.items()])

        def invoke(self, ctx: click.Context) -> object:
            try:
                return super().invoke(ctx)
            except DranetError as error:
                raise click.ClickException(str(error)) from error
            except click.exceptions.NoArgsIsHelpError:
                raise
            except click.UsageError as error:
                raise OneLine(error) from error
            except OSError as error:
                if error.errno in {errno.EPIPE, errno.ENOSPC, errno.EIO}:
                    _not_written(error)
                raise click.ClickException(str(error)) from error

    return Lazy(
        name="dranet",
        help="Network and RDMA cards for Kubernetes pods, and tools that predict what the scheduler will do with them.",
        params=[_version_option(__version__)],
    )


def _version_option(version: str) -> click.Parameter:
    import click

    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            click.echo(f"dranet {version}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show, help="Show the version."
    )
