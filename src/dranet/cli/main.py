"""The command ``dranet``, which is also ``kubectl dranet``.

A command is imported only when it runs, so that the daemon and other commands do not load its libraries. Flags without
a command, the container arguments of the reference driver, start the daemon.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

COMMANDS = {
    "inventory": "list the network devices of this node",
    "status": "list published, used and tainted devices of the cluster",
    "plan": "predict on which nodes and with which devices pods will run",
    "record": "write the objects of a cluster that a plan reads into a file",
    "explain": "explain why a claim got its devices, or cannot be allocated",
    "lint": "find mistakes in manifests",
    "topo": "show distances between GPUs and NICs",
    "suggest": "write a claim template for aligned devices",
    "shape": "list, show, capture and import machine shapes",
    "report": "compare a benchmark result with what the devices should reach",
    "check": "find network faults of a node or between nodes",
    "sysdump": "write what a support ticket needs into one archive",
    "pod-info": "list the NICs of the pod it runs in",
    "serve": "serve a web page with machines, pods and alignment",
    "demo": "run example scenarios on this machine",
    "init": "print the commands that set up a cluster in a cloud",
    "enable-nri": "enable NRI in the containerd of a node",
    "completion": "print the shell completion script",
}

DRIVER_LIBRARIES = {"grpclib": "grpclib", "google.protobuf": "protobuf", "prometheus_client": "prometheus-client"}
"""By module, the package name: the extra `driver` of pyproject.toml, which the image has and a laptop may not need."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of both executables."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and (args[0] == "run" or _reference_style(args)):
        sys.exit(_run_driver(args[1:] if args[0] == "run" else args))
    try:
        load_group()(args=args, prog_name="dranet")
    finally:
        _flush()


def require_driver_libraries(command: str) -> None:
    """Raise an error with the install command if a library of the driver is missing."""
    from dranet.core.errors import DranetError

    missing = [package for module, package in DRIVER_LIBRARIES.items() if not _is_installed(module)]
    if missing:
        raise DranetError(
            f"{command} needs libraries that are not installed ({', '.join(missing)}): pip install 'dranet[driver]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package, such as google, is missing
        return False


def _run_driver(args: Sequence[str]) -> int:
    from dranet.core.errors import DranetError

    try:
        require_driver_libraries("dranet run")
    except DranetError as error:
        print(f"dranet: {error}", file=sys.stderr)
        return 2
    from dranet.node.server.daemon import main as run

    return run(args)


def _flush() -> None:
    """Flush standard output, so that a full disk is an error message and not a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _not_written(error)


def _not_written(error: OSError) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would flush again at exit and fail
    if isinstance(error, BrokenPipeError):
        sys.exit(141)
    print(f"Error: cannot write to standard output: {error.strerror}", file=sys.stderr)
    sys.exit(1)


def _reference_style(args: Sequence[str]) -> bool:
    """Whether the arguments are flags without a command."""
    return args[0].startswith("-") and args[0] not in {"-h", "--help", "--version"}


def _available() -> dict[str, str]:
    """Commands whose module exists: the image leaves some out."""
    return {name: text for name, text in COMMANDS.items() if find_spec(f"dranet.cli.{name.replace('-', '_')}")}


def load_command(name: str) -> click.Command:
    """The command from the module of its name."""
    from dranet.cli.examples import epilog

    module = name.replace("-", "_")
    command: click.Command = getattr(importlib.import_module(f"dranet.cli.{module}"), module)
    for path, one in ((name, command), *((f"{name} {sub}", c) for sub, c in getattr(command, "commands", {}).items())):
        one.epilog = epilog(path)
    return command


def load_group() -> click.Group:
    """The `dranet` command with its subcommands. Imports click, which the daemon does not need."""
    import click

    from dranet import __version__
    from dranet.core.errors import DranetError, did_you_mean

    class OneLine(click.ClickException):
        """A usage error on one line; click would print the usage first."""

        exit_code = 2

        def __init__(self, error: click.UsageError) -> None:
            command = error.ctx.command_path if error.ctx else "dranet"
            message = " ".join(error.format_message().split()).removesuffix(".")
            super().__init__(f"{message} (see {command} --help)")

    class Lazy(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return ["run", *_available()]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return load_command(cmd_name) if cmd_name in _available() else None

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if args and self.get_command(ctx, args[0]) is None:
                hint = did_you_mean(args[0], self.list_commands(ctx))
                raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx)
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([("run", "run the driver on a node (see dranet run --help)"), *_available().items()])

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
        help="Network and RDMA devices for Kubernetes pods, and tools that predict how they are scheduled.",
        params=[_version_option(__version__)],
        context_settings={"help_option_names": ["-h", "--help"]},
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
