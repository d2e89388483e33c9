"""Child processes of the sandbox: inside a network namespace, and never outliving it.

A child asks the kernel to be killed when its parent dies, so even a sandbox ended with SIGKILL leaves no driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dranet.kernel.namespaces import Namespace
from dranet.model.errors import DranetError


class ProcessError(DranetError):
    """A process of the sandbox did not start or ended by itself."""


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
                start_new_session=True,  # an interrupt from the keyboard is for the sandbox, which ends its children
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

    async def stop(self, patience: float = 15.0) -> None:
        """Ask it to end; insist after a while."""
        if not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), patience)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def tail(self, lines: int = 20) -> str:
        """The end of its log, for error messages."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this very Python."""
    return [sys.executable, "-m", module, *arguments]
