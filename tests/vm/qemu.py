"""One QEMU process: started cold to save its state, or resumed from that state to do a job.

A restored machine must have the very command line it was saved with; only the backends (sockets, the shared folder) may
differ. The project's share is plugged in after the restore, for a mounted share would have blocked saving.
"""

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.vm import machine
from tests.vm.image import Image

KERNEL_OPTIONS = "panic=-1 quiet mitigations=off nokaslr sysctl.kernel.hung_task_timeout_secs=60"
"""The kernel writes the stacks of tasks that are blocked for a minute to the console, which a failed run prints."""

CONSOLE_LINES = 120


class MachineFailed(Exception):
    """The machine did not do what was asked in time; the message ends with its console."""


class Channel:
    """Lines of JSON over one of QEMU's sockets."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._buffer = b""
        while True:
            try:
                self._socket.connect(str(path))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise MachineFailed(f"{path.name} did not open: {error}") from error
                time.sleep(0.02)

    def send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                piece = self._socket.recv(65536)
            except TimeoutError as error:
                raise MachineFailed("no answer in time") from error
            except ConnectionError:
                piece = b""
            if not piece:
                raise MachineFailed("the machine went away")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stream(self) -> socket.socket:
        """The socket itself, for a shell's raw bytes."""
        self._socket.settimeout(None)
        return self._socket


class Machine:
    """A running QEMU with its monitor (QMP) and the channel to the guest's agent."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self.process = process
        self._monitor = Channel(folder / "monitor", deadline)
        self._monitor.receive(deadline)
        self.monitor("qmp_capabilities")
        self.agent = Channel(folder / "agent", deadline)

    def monitor(self, execute: str, **arguments: Any) -> Any:
        deadline = time.monotonic() + 60
        self._monitor.send({"execute": execute, "arguments": arguments})
        while True:
            answer = self._monitor.receive(deadline)
            if "error" in answer:
                raise MachineFailed(f"{execute}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def wait_until(self, query: str, states: set[str], timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = str(self.monitor(query).get("status"))
            if status in states:
                return status
            time.sleep(0.02)
        raise MachineFailed(f"{query} did not reach {sorted(states)}")

    def save(self, file: Path) -> None:
        self.monitor("stop")
        self.monitor("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.monitor("migrate", uri=f"file:{file}")
        if self.wait_until("query-migrate", {"completed", "failed"}, 120) != "completed":
            raise MachineFailed("QEMU could not save the machine's state")

    def resume(self) -> None:
        if self.wait_until("query-status", {"running", "paused", "postmigrate"}, 60) != "running":
            self.monitor("cont")
        share = {"driver": "virtio-9p-pci", "id": "share", "bus": "latecomers", "fsdev": "project"}
        self.monitor("device_add", **share, mount_tag=machine.PROJECT_TAG)


@contextmanager
def started(image: Image, project: Path, state: Path | None, timeout: float = 30) -> Iterator[Machine]:
    """A machine for as long as the block lasts, cold or restored from `state`; always ended with the block."""
    with tempfile.TemporaryDirectory(prefix="dranet-vm-") as name:
        folder = Path(name)
        incoming = ["-incoming", f"file:{state}"] if state else []
        words = ["setpriv", "--pdeathsig", "KILL", *image.qemu(), *_arguments(image, project, folder), *incoming]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=(folder / "errors").open("wb"))
        try:
            yield Machine(process, folder, timeout)
        except MachineFailed as error:
            raise MachineFailed(f"{error}\n{_tail(folder / 'errors')}\n{_tail(folder / 'console')}") from error
        finally:
            process.kill()
            process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-CONSOLE_LINES:]) if log.exists() else ""


def arguments_key(image: Image) -> list[str]:
    """All that must be the same between saving and restoring."""
    return _arguments(image, Path("/project"), Path("/run"))


def _arguments(image: Image, project: Path, folder: Path) -> list[str]:
    socket_options = "server=on,wait=off"
    return [
        *machine.arguments(image.architecture),
        *["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
        *("-kernel", str(image.kernel / "vmlinuz"), "-initrd", str(image.kernel / "initramfs.gz")),
        *("-append", f"console={image.architecture.console} {KERNEL_OPTIONS}"),
        *("-serial", f"file:{folder}/console"),
        *("-qmp", f"unix:{folder}/monitor,{socket_options}"),
        *("-drive", f"file={image.root},if=none,id=root,format=raw,readonly=on"),
        *("-device", "virtio-blk-pci,drive=root,bus=pcie.0,addr=0x10"),
        *("-device", "virtio-serial-pci,bus=pcie.0,addr=0x11"),
        *("-chardev", f"socket,path={folder}/agent,{socket_options},id=agent"),
        *("-device", f"virtserialport,chardev=agent,name={machine.CONTROL_PORT}"),
        *("-device", "pcie-root-port,id=latecomers,bus=pcie.0,addr=0x13,chassis=30,slot=30"),
        *("-fsdev", f"local,id=project,path={project},security_model=none,readonly=on,multidevs=remap"),
    ]
