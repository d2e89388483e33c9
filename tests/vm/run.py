"""Runs tests inside the virtual machine: `python -m tests.vm.run [pytest arguments]`, or `--shell` for a look around.

Builds what is missing in the cache, restores the saved machine, runs pytest in it, prints the table, and ends the
machine whatever happened. A machine that cannot have it says so and counts as skipped (exit code 0).
"""

import argparse
import base64
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tests.vm import image, product, qemu, report, shell
from tests.vm.architecture import ARCHITECTURES, Architecture
from tests.vm.cache import Cache, digest, say
from tests.vm.machine import PROJECT_TAG
from tools.apt import AptError

PROJECT = Path(__file__).resolve().parents[2]
DEFAULT_TESTS = [
    "tests/vm",
    "tests/linux",
    "tests/node/driver/test_child_interfaces.py",
    "tests/node/inventory/test_command.py::test_members_of_an_uplink_bond_are_left_alone",
]
"""Shared bodies come along: what a test skips on a poorer kernel, it does here."""
ARM64_TESTS = [
    *(f"tests/vm/test_{name}.py" for name in ("machine", "image", "daemon", "driver", "rdma_netlink")),
    *(
        f"tests/linux/test_{name}.py"
        for name in ("numbers", "codec", "records", "netlink", "rdma", "ethtool", "bpf", "dhcp")
    ),
]
"""Where another processor can matter: layouts of structs, numbers of system calls, and the driver as a whole."""
GUEST_OPTIONS = ["-p", "tests.vm.world", "-m", "not hypothesis"]
"""The world's fixtures for every test; no generated inputs, which are thousands of slow repetitions."""
BOOT_SECONDS = 240
RESTORE_SECONDS = 60
RUN_SECONDS = 4800
"""Ends a run that never ends. Runs that are stuck are noticed earlier, by what follows."""
SILENT_SECONDS = 650
"""The guest's agent ends tests that print nothing for this long, or that are blocked in the kernel for a minute, and
reports where they hang. pytest ends a test after 600 s."""
ALIVE_SECONDS = 90
"""The agent reports every five seconds. A guest that does not is stuck itself, and its console is printed."""

Answer = TypeVar("Answer")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vm.run", description=__doc__)
    parser.add_argument("--shell", action="store_true", help="open a shell in the machine instead of running tests")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="amd64", help="what kind of machine (default amd64)")
    parser.add_argument("--build-only", action="store_true", help="build what is missing in the cache and stop")
    parser.add_argument("--rebuild", action="store_true", help="forget the cache first, to take Debian's newest")
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="longest time of the tests (default 4800)")
    parser.add_argument("--silent", type=float, default=SILENT_SECONDS, help="longest time without output (650)")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the guest's report to this file")
    options, pytest_arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a signal leaves no folder behind
    started = time.monotonic()
    cache = Cache.of_user()
    try:
        built, state = prepare(cache, ARCHITECTURES[options.arch], options.rebuild)
    except AptError as missing:
        say(f"SKIPPED, 1 tier not run: {missing}")
        return 0
    except qemu.MachineFailed as error:
        say(f"the machine does not start: {error}")
        return 1
    if options.build_only:
        return 0
    if options.shell:
        return open_shell(built, state)
    named = any((PROJECT / word.partition("::")[0]).exists() for word in pytest_arguments)
    arguments = pytest_arguments + ([] if named else chosen(built.architecture))
    if any(product.TEST.startswith(word.partition("::")[0].rstrip("/")) for word in arguments if "/" in word):
        product.unpack(built.architecture)
    code, junit = run_tests(built, state, arguments, options.seconds, options.silent)
    if options.junit and junit:
        options.junit.write_text(junit)
    print(report.table(report.results(junit) if junit else [], time.monotonic() - started))
    return code


def chosen(kind: Architecture) -> list[str]:
    """All of it where it runs fast enough."""
    return DEFAULT_TESTS if kind is ARCHITECTURES["amd64"] else ARM64_TESTS


def prepare(cache: Cache, kind: Architecture, rebuild: bool) -> tuple[image.Image, Path]:
    with cache.lock():
        if rebuild:
            for part in sorted(cache.root.glob("*-*")):
                shutil.rmtree(part)
        built = image.build(cache, kind)
        key = digest(str(built.tools), qemu.arguments_key(built))
        state = cache.part(kind.part("state"), key, lambda folder: save_state(built, folder / "machine"))
    return built, state / "machine"


def save_state(built: image.Image, file: Path) -> None:
    """Boots cold, waits for the agent and saves the machine as it stands, pytest imported."""
    with ExitStack() as stack:
        machine = twice(lambda: boot(stack, built))
        machine.save(file)


def boot(stack: ExitStack, built: image.Image) -> qemu.Machine:
    machine = stack.enter_context(qemu.started(built, PROJECT, state=None))
    machine.agent.receive(time.monotonic() + BOOT_SECONDS)
    return machine


def restore(stack: ExitStack, built: image.Image, state: Path, job: dict[str, object]) -> qemu.Machine:
    """A machine that has begun its job."""
    machine = stack.enter_context(qemu.started(built, PROJECT, state))
    machine.resume()
    machine.agent.send(job)
    answer = machine.agent.receive(time.monotonic() + RESTORE_SECONDS)
    if "started" not in answer:
        raise qemu.MachineFailed(f"the guest could not start its job: {answer}")
    return machine


def twice(attempt: Callable[[], Answer]) -> Answer:
    """One start in ninety hangs early under emulation: try again once, and say so."""
    try:
        return attempt()
    except qemu.MachineFailed as error:
        say(f"the machine did not start, trying once more: {error}")
        return attempt()


def run_tests(built: image.Image, state: Path, arguments: list[str], seconds: float, silent: float) -> tuple[int, str]:
    """Passes on what pytest prints in the guest; answers its exit code and report."""
    with ExitStack() as stack:
        machine = twice(
            lambda: restore(stack, built, state, job(GUEST_OPTIONS + arguments, shell=False, silent=silent))
        )
        deadline = time.monotonic() + seconds
        while True:
            answer = machine.agent.receive(min(deadline, time.monotonic() + ALIVE_SECONDS))
            if "exit" in answer:
                return answer["exit"], answer["report"]
            if "wire" in answer:
                pull_cables(machine, base64.b64decode(answer["wire"]).decode())
            elif "output" in answer:
                sys.stdout.buffer.write(base64.b64decode(answer["output"]))
                sys.stdout.flush()


def pull_cables(machine: qemu.Machine, lines: str) -> None:
    """What a guest cannot do to itself: `nic0 off` takes the carrier from a NIC, `nic0 on` gives it back."""
    for line in lines.splitlines():
        nic, state = line.split()
        machine.monitor("set_link", name=nic, up=state == "on")


def open_shell(built: image.Image, state: Path) -> int:
    with ExitStack() as stack:
        machine = twice(lambda: restore(stack, built, state, job([], shell=True)))
        shell.relay(machine.agent.stream())
    return 0


def job(arguments: list[str], shell: bool, silent: float = SILENT_SECONDS) -> dict[str, object]:
    return {
        "now": time.time(),
        "project": str(PROJECT),
        "tag": PROJECT_TAG,
        "arguments": arguments,
        "shell": shell,
        "silent_seconds": silent,
    }


if __name__ == "__main__":
    sys.exit(main())
