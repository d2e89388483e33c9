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

from tests.vm import kernel, recipe
from tests.vm.cache import Cache, digest
from tests.vm.debian import archive, command
from tests.vm.recipe import Packages
from tools.apt import unpack


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
    kernel_key = digest(recipe.KERNEL, recipe.FIRST_STAGE, recipe.RXE_EDIT)
    base_key = digest(recipe.ROOT, recipe.PYTHON)
    root_key = digest(base_key, kernel_key, recipe.SECOND_STAGE, recipe.AGENT)
    with tempfile.TemporaryDirectory(dir=cache.root, prefix="work-") as name:
        work = Path(name)
        tools = cache.part("tools", digest(recipe.TOOLS), lambda to: _unpacked(to, work / "t", recipe.TOOLS))
        kernel_part = cache.part("kernel", kernel_key, lambda to: kernel.build(to, work / "k", tools))
        base = cache.part("base", base_key, lambda to: _base(to, work / "b"))
        root = cache.part("root", root_key, lambda to: _root(to, base, kernel_part, tools, work / "r"))
    return Image(tools, kernel_part, root / "root.squashfs")


def _unpacked(target: Path, work: Path, wanted: Packages) -> None:
    unpack(archive(wanted.suite, work).closure(*wanted.packages), target)
    for folder in wanted.unused:
        shutil.rmtree(target / folder, ignore_errors=True)


def _base(target: Path, work: Path) -> None:
    """Debian packages and Python packages, compiled. No maintainer script runs: nothing here needs one."""
    _unpacked(target, work, recipe.ROOT)
    _python_packages(target / "site")
    name = f"python{recipe.PYTHON.version}"
    options = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(target)]
    folders = [str(target / "site"), str(target / "usr/lib" / name)]
    environment = {**os.environ, "PYTHONHOME": str(target / "usr")}
    subprocess.run([*command(target, f"usr/bin/{name}", *options), *folders], check=True, env=environment)


def _python_packages(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    platforms = [f"--platform=manylinux{version}_x86_64" for version in ("_2_28", "_2_17", "2014")]
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
