"""Watches a running pod from outside the driver: `ip monitor` in its network namespace reports every link that leaves.

Sampling would miss a link that is taken out and put back; the kernel's events do not.
"""

from __future__ import annotations

import os
import signal
import subprocess

from dranet.linux.namespaces import Namespace


class Watcher:
    """From its creation to `stop`. The pod's own processes must not remove links meanwhile."""

    def __init__(self, namespace: Namespace) -> None:
        inside = f"--net=/proc/{os.getpid()}/fd/{namespace.fd}"
        command = ["nsenter", inside, "ip", "-o", "monitor", "link"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def stop(self) -> list[str]:
        """The links that left, or went down, while it watched."""
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate()
        return [line.strip() for line in output.splitlines() if line.startswith("Deleted") or "state DOWN" in line]
