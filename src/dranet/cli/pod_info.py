"""``dranet pod-info``: which cards this container has, from the metadata files mounted into it."""

from __future__ import annotations

import sys

import click

from dranet import podinfo

HELP = """Inside a container: the cards of its claims, with interface, addresses, RDMA device and GID index. The same as
the file podinfo.py of this package, which needs nothing but Python and can be copied into any image."""


@click.command(name="pod-info", help=HELP)
@click.option(
    "--base", metavar="DIR", default=podinfo.BASE, show_default=True, help="Where metadata files are mounted."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "export"]), default="table")
def pod_info(base: str, output: str) -> None:
    """Print what there is."""
    sys.exit(podinfo.main(["--base", base, "--output", output]))
