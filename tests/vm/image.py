"""The parts of the virtual machine, in the order they are built: tools, kernel, Python packages, root, saved state.

The root is a read-only squashfs without compression, for the guest pays dearly for every instruction. Everything Python
would compile on first import is compiled here, on the host, by the guest's own Python.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.vm import kernel
from tests.vm.cache import Cache, digest
from tests.vm.debian import Archive, command, unpack

SUITE = "trixie"
HERE = Path(__file__).parent
GUEST_FILES = tuple(HERE / "guest" / name for name in ("first-stage", "second-stage", "agent.py"))
TOOL_PACKAGES = ["base-files", "qemu-system-x86", "squashfs-tools", "kmod", "busybox-static"]
ROOT_PACKAGES = [
    "base-files",
    "dash",
    "bash",
    "coreutils",
    "grep",
    "sed",
    "findutils",
    "less",
    "util-linux",
    "mount",
    "procps",
    "hostname",
    "kmod",
    "python3",
    "iproute2",
    "iputils-ping",
    "ethtool",
    "bpftool",
    "nftables",
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "rdmacm-utils",
    "perftest",
]
PYTHON_VERSION = "3.13"
PYTHON_PACKAGES = [
    "grpclib",
    "h11",
    "msgspec",
    "prometheus-client",
    "protobuf",
    "PyYAML",
    "click",
    "rich",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "hypothesis",
    "pyroute2",
]
UNUSED_IN_ROOT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl", "usr/lib/udev/hwdb.d")


@dataclass(frozen=True)
class Image:
    """What a boot needs: the unpacked tools, the kernel folder and the root file."""

    tools: Path
    kernel: Path
    root: Path

    def qemu(self) -> list[str]:
        data = self.tools / "usr/share"
        folders = [word for name in ("qemu", "seabios") for word in ("-L", str(data / name))]
        return command(self.tools, "usr/bin/qemu-system-x86_64", *folders)


def build(cache: Cache) -> Image:
    cache.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.root, prefix="work-") as name:
        work = Path(name)
        tools = cache.part("tools", digest(SUITE, TOOL_PACKAGES), lambda to: _unpacked(to, work / "t", TOOL_PACKAGES))
        kernel_key = digest(
            kernel.SUITE, kernel.GUEST_MODULES, kernel.FIRST_STAGE, GUEST_FILES[0], HERE / "rxe-netns/edit.py"
        )
        kernel_part = cache.part("kernel", kernel_key, lambda to: kernel.build(to, work, tools))
        base_key = digest(SUITE, ROOT_PACKAGES, PYTHON_VERSION, PYTHON_PACKAGES)
        base = cache.part("base", base_key, lambda to: _base(to, work / "b"))
        root_key = digest(base_key, kernel_key, *GUEST_FILES)
        root = cache.part("root", root_key, lambda to: _root(to, base, kernel_part, tools, work / "r"))
    return Image(tools, kernel_part, root / "root.squashfs")


def _unpacked(target: Path, work: Path, packages: list[str]) -> None:
    archive = Archive(SUITE, work)
    archive.update()
    unpack(archive.closure(*packages), target)


def _base(target: Path, work: Path) -> None:
    """Debian packages and Python packages, compiled. No maintainer script runs: nothing here needs one."""
    _unpacked(target, work, ROOT_PACKAGES)
    for folder in UNUSED_IN_ROOT:
        shutil.rmtree(target / folder, ignore_errors=True)
    _python_packages(target / "site")
    python = command(target, f"usr/bin/python{PYTHON_VERSION}", "-I", "-m", "compileall", "-q", "--invalidation-mode")
    folders = [str(target / "site"), str(target / f"usr/lib/python{PYTHON_VERSION}")]
    environment = {**os.environ, "PYTHONHOME": str(target / "usr")}
    subprocess.run([*python, "unchecked-hash", "-s", str(target), *folders], check=False, env=environment)


def _python_packages(target: Path) -> None:
    """Wheels for the guest's Python; the few that come as source only are pure Python and are built first."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, "grpclib"], check=True)
        platforms = [f"--platform=manylinux{version}_x86_64" for version in ("_2_28", "_2_17", "2014")]
        subprocess.run(
            [*pip, "install", "--target", str(target), "--only-binary=:all:", "--find-links", wheels]
            + [f"--python-version={PYTHON_VERSION}", "--implementation=cp", *platforms, *PYTHON_PACKAGES],
            check=True,
        )


def _root(target: Path, base: Path, kernel_part: Path, tools: Path, work: Path) -> None:
    extra = work / "extra"
    (extra / "vm").mkdir(parents=True)
    for file in GUEST_FILES:
        shutil.copy(file, extra / "vm")
    (extra / "vm/second-stage").chmod(0o755)
    (extra / "vm/modules").write_text(" ".join(kernel.GUEST_MODULES))
    _link_copy(base, work / "root")
    _link_copy(kernel_part / "root/usr", work / "root/usr")
    _link_copy(extra, work / "root")
    plain = ["-noI", "-noD", "-noF", "-noX", "-all-root", "-no-progress", "-quiet", "-reproducible"]
    file = str(target / "root.squashfs")
    subprocess.run(command(tools, "usr/bin/mksquashfs", str(work / "root"), file, *plain), check=True)


def _link_copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
