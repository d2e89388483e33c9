"""``dranet demo``: the product at work on this machine, with no GPUs and no cluster.

The command starts itself again in namespaces of its own (see `dranet.sandbox.isolation`) and plays the stories there.
Outside it imports little, since all it does is wait.
"""

from __future__ import annotations

import json
import sys

import click

from dranet.cli.driver_libraries import require_driver_libraries
from dranet.sandbox.isolation import run_isolated, settle
from dranet.sandbox.stories import chosen


@click.command(help="See it all at work on this machine: the recipes of examples/ as stories, on sandbox machines.")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--list", "only_list", is_flag=True, help="List the scenarios.")
@click.option("--keep", is_flag=True, help="Leave the last scenario running and say how to look around.")
@click.option("--web", is_flag=True, help="Show the sandbox as a page in the browser too, while a scenario runs.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--page-socket", type=int, default=None, hidden=True, help="Listening socket of the page, from outside.")
@click.option("--inside", is_flag=True, hidden=True, help="Already in namespaces of its own.")
def demo(
    scenarios: tuple[str, ...],
    only_list: bool,
    keep: bool,
    web: bool,
    output: str,
    page_socket: int | None,
    inside: bool,
) -> None:
    """Play the scenarios, all of them if none is named; the exit status tells whether every check passed."""
    stories = chosen(scenarios)
    if only_list:
        rows = [{"name": story.name, "title": story.title} for story in stories]
        lines = [f"{row['name']:12}{row['title']}" for row in rows]
        click.echo(json.dumps({"scenarios": rows}, indent=2) if output == "json" else "\n".join(lines))
        return
    require_driver_libraries("dranet demo")
    if not inside:
        options = ["--inside", *(["--keep"] if keep else []), "-o", output]
        sys.exit(_outside(options, scenarios, web))
    else:
        from dranet.cli.demonstration.play import play

        sys.exit(play(stories, settle(), keep, output, page_socket))


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
