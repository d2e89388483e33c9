"""Trap 24: a plugin stopped (SIGSTOP) while an event lies in its socket must not carry it out when it wakes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dranet.kubernetes.nri import messages
from dranet.kubernetes.nri.runtime import Runtime, Settings

PLUGIN = """
import asyncio, sys
from pathlib import Path
from dranet.kubernetes.nri import Backoff, Handler, Plugin

class Printer(Handler):
    async def synchronize(self, pods, containers, context):
        print("synchronized", flush=True)
        return ()
    async def run_pod_sandbox(self, pod, context):
        print(pod.name, flush=True)

plugin = Plugin("printer", "10", Printer(), socket=Path(sys.argv[1]), backoff=Backoff(first=0.01))
if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(plugin.run())
else:
    asyncio.run(plugin.run())
"""


@pytest.fixture(params=["asyncio", "uvloop"])
async def process(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PLUGIN, str(folder / "nri.sock"), request.param, stdout=asyncio.subprocess.PIPE
    )
    yield child
    child.kill()
    await child.communicate()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def test_trap_24_an_event_the_runtime_gave_up_is_not_carried_out_late(
    folder: Path, process: asyncio.subprocess.Process
) -> None:
    patient = Settings(registration_timeout=60, request_timeout=60)
    async with Runtime(folder / "nri.sock", settings=patient) as runtime:
        assert await line(process) == "synchronized"
        await runtime.wait_for(bool)
        os.kill(process.pid, signal.SIGSTOP)
        runtime.settings = Settings(request_timeout=0.2)
        await runtime.run_pod_sandbox(messages.PodSandbox(name="given-up"))
        runtime.settings = patient
        await runtime.wait_for(lambda plugins: not plugins)
        os.kill(process.pid, signal.SIGCONT)
        assert await line(process) == "synchronized"
        await runtime.wait_for(bool)
        await runtime.run_pod_sandbox(messages.PodSandbox(name="after"))
        assert await line(process) == "after"
