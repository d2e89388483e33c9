"""Child processes of the sandbox, inside a network namespace.

The kernel kills a child when its parent dies (PDEATHSIG), so even a sandbox killed with SIGKILL leaves no driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dranet.core.errors import DranetError
from dranet.linux.namespaces import Namespace


class ProcessError(DranetError):
    """A process of the sandbox did not start, or exited."""


class Child:
    """One running process with its log file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def start(
        cls, command: Sequence[str], *, inside: Namespace, log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a command in a namespace; its output goes to the log."""
        enter = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/self/fd/{inside.fd}", "--"]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *enter,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[inside.fd],
                start_new_session=True,  # Ctrl-C is for the sandbox, which stops its children
                env={**os.environ, **(environment or {})},
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, grace_seconds: float = 15.0) -> None:
        """Terminate the process; kill it after the grace period."""
        if not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill the process, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log, for error messages."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with the current Python."""
    return [sys.executable, "-m", module, *arguments]
