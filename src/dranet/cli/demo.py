"""``dranet demo``: the product at work on this machine, with no GPUs and no cluster.

The command starts itself again in namespaces of its own (see `dranet.testing.isolation`) and plays the scenarios there.
Outside it imports little, since all it does is wait.
"""

from __future__ import annotations

import json
import sys

import click

from dranet.cli.main import require_driver_libraries
from dranet.testing.isolation import prepare_sandbox, run_isolated
from dranet.testing.scenarios import select_scenarios


@click.command(
    help="Run the recipes of examples/ as scenarios on sandbox machines on this host. Needs no GPUs and no cluster."
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "only_list", is_flag=True, help="List the scenarios.")
@click.option("--keep", is_flag=True, help="Keep the last scenario running and print commands to inspect it.")
@click.option("--web", is_flag=True, help="Serve the web page of the sandbox while a scenario runs.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--page-socket",
    type=int,
    default=None,
    hidden=True,
    help="Listening socket of the page, opened by the parent process.",
)
@click.option("--inside", is_flag=True, hidden=True, help="The process already has its own namespaces.")
def demo(
    scenarios: tuple[str, ...],
    only_list: bool,
    keep: bool,
    web: bool,
    output: str,
    page_socket: int | None,
    inside: bool,
) -> None:
    """Run the given scenarios, or all of them; exit 1 if a check fails."""
    selected = select_scenarios(scenarios)
    if only_list:
        rows = [{"name": scenario.name, "title": scenario.title} for scenario in selected]
        lines = [f"{row['name']:12}{row['title']}" for row in rows]
        click.echo(json.dumps({"scenarios": rows}, indent=2) if output == "json" else "\n".join(lines))
        return
    require_driver_libraries("dranet demo")
    if not inside:
        options = ["--inside", *(["--keep"] if keep else []), "-o", output]
        sys.exit(_outside(options, scenarios, web))
    else:
        from dranet.cli.demonstration.play import play

        sys.exit(play(selected, prepare_sandbox(), keep, output, page_socket))


def _outside(options: list[str], scenarios: tuple[str, ...], web: bool) -> int:
    """Play in namespaces of their own; the page's socket comes from out here, where the browser is."""
    command = [sys.executable, "-m", "dranet", "demo", *options]
    if not web:
        return run_isolated([*command, *scenarios])
    from dranet.web import listen

    with listen("127.0.0.1", 0) as page:
        host, port = page.getsockname()[:2]
        click.echo(f"The page: http://{host}:{port}/", err=True)
        return run_isolated([*command, f"--page-socket={page.fileno()}", *scenarios], keep_open=(page.fileno(),))
