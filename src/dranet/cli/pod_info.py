"""``dranet pod-info``: the NICs of this container, from the metadata files mounted into it."""

from __future__ import annotations

import sys

import click

from dranet.core import podinfo

_HELP = """List the NICs of the claims of the container it runs in: interface, addresses, RDMA device and GID index.
The file podinfo.py of this package does the same, needs only Python, and can be copied into any image."""


@click.command(name="pod-info", help=_HELP)
@click.option(
    "--base", metavar="DIR", default=podinfo.BASE, show_default=True, help="Directory of the mounted metadata files."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "export"]), default="table")
def pod_info(base: str, output: str) -> None:
    sys.exit(podinfo.main(["--base", base, "--output", output]))
