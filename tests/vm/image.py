"""The parts of the virtual machine, in the order they are built: tools, kernel, Python packages, root, saved state.

The root is a read-only squashfs without compression, for the guest pays dearly for every instruction. Everything Python
would compile on first import is compiled here, on the host, by the guest's own Python.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tests.vm import kernel, recipe
from tests.vm.architecture import Architecture
from tests.vm.cache import Cache, digest
from tests.vm.debian import archive, command
from tests.vm.recipe import Packages
from tools.apt import unpack


@dataclass(frozen=True)
class Image:
    """What a boot needs: the unpacked tools, the kernel folder and the root file."""

    architecture: Architecture
    tools: Path
    kernel: Path
    root: Path

    def qemu(self) -> list[str]:
        return self.architecture.emulator(self.tools)


def build(cache: Cache, kind: Architecture) -> Image:
    cache.root.mkdir(parents=True, exist_ok=True)
    wanted = replace(recipe.TOOLS, packages=[*recipe.TOOLS.packages, *kind.extra_tools])
    kernel_key = digest(recipe.KERNEL, recipe.FIRST_STAGE, recipe.RXE_EDIT)
    base_key = digest(recipe.ROOT, recipe.PYTHON)
    root_key = digest(base_key, kernel_key, recipe.SECOND_STAGE, recipe.AGENT)
    with tempfile.TemporaryDirectory(dir=cache.root, prefix="work-") as name:
        work = Path(name)
        tools = cache.part(kind.part("tools"), digest(wanted), lambda to: _unpacked(to, work / "t", wanted))
        kernel_part = cache.part(kind.part("kernel"), kernel_key, lambda to: kernel.build(to, work / "k", tools, kind))
        base = cache.part(kind.part("base"), base_key, lambda to: _base(to, work / "b", tools, kind))
        root = cache.part(kind.part("root"), root_key, lambda to: _root(to, base, kernel_part, tools, work / "r"))
    return Image(kind, tools, kernel_part, root / "root.squashfs")


def _unpacked(target: Path, work: Path, wanted: Packages, architecture: str = "") -> None:
    unpack(archive(wanted.suite, work, architecture).closure(*wanted.packages), target)
    for folder in wanted.unused:
        shutil.rmtree(target / folder, ignore_errors=True)


def _base(target: Path, work: Path, tools: Path, kind: Architecture) -> None:
    """Debian packages and Python packages, compiled. No maintainer script runs: nothing here needs one."""
    _unpacked(target, work, recipe.ROOT, kind.name)
    _python_packages(target / "site", kind)
    name = f"python{recipe.PYTHON.version}"
    options = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(target)]
    folders = [str(target / "site"), str(target / "usr/lib" / name)]
    environment = {**os.environ, "PYTHONHOME": str(target / "usr")}
    python = kind.guest_program(tools, target, f"usr/bin/{name}", *options)
    subprocess.run([*python, *folders], check=True, env=environment)


def _python_packages(target: Path, kind: Architecture) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    platforms = [f"--platform=manylinux{version}_{kind.kernel_name}" for version in ("_2_28", "_2_17", "2014")]
    guest = [f"--python-version={recipe.PYTHON.version}", "--implementation=cp", "--only-binary=:all:", *platforms]
    subprocess.run([*pip, "install", "--target", str(target), *guest, *recipe.PYTHON.packages], check=True)


def _root(target: Path, base: Path, kernel_part: Path, tools: Path, work: Path) -> None:
    extra = work / "extra"
    (extra / "vm").mkdir(parents=True)
    for file in (recipe.SECOND_STAGE, recipe.AGENT):
        shutil.copy(file, extra / "vm")
    (extra / "vm/second-stage").chmod(0o755)
    (extra / "vm/modules").write_text(" ".join(recipe.KERNEL.modules))
    _link_copy(base, work / "root")
    _link_copy(kernel_part / "root/usr", work / "root/usr")
    _link_copy(extra, work / "root")
    plain = ["-noI", "-noD", "-noF", "-noX", "-all-root", "-no-progress", "-quiet", "-reproducible"]
    result = str(target / "root.squashfs")
    subprocess.run(command(tools, "usr/bin/mksquashfs", str(work / "root"), result, *plain), check=True)


def _link_copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
