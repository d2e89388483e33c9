"""Run a command against a fake API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import Result

from dranet.testing.apihttp import serve
from dranet.testing.apiserver import SandboxApiServer
from tests.inputs import run


def write_kubeconfig(folder: Path, port: int) -> Path:
    """A kubeconfig of a server at this port."""
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


async def run_against(server: SandboxApiServer, folder: Path, *args: str) -> Result:
    """The result of a command with ``--kubeconfig``."""
    async with serve(server) as port:
        return await asyncio.to_thread(run, *args, "--kubeconfig", write_kubeconfig(folder, port))
