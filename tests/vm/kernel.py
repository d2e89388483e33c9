"""Debian's kernel for the guest: the image, the modules the tests need, the first stage, and an rxe that can move.

The modules come as one package of thousands; the guest gets those the recipe names and what they depend on.
"""

import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.vm import debian, recipe
from tests.vm.architecture import Architecture
from tests.vm.debian import command
from tools.apt import Archive, unpack


def build(target: Path, work: Path, tools: Path, kind: Architecture) -> None:
    archive = debian.archive(recipe.KERNEL.suite, work / "archive", kind.name)
    version = _version(archive, kind)
    unpacked = work / "kernel"
    unpack(archive.download(*(f"linux-{part}-{version}" for part in ("base", "binary", "modules"))), unpacked)
    modules = unpacked / "usr/lib/modules" / version
    (target / "version").write_text(version)
    shutil.copy(modules / "vmlinuz", target / "vmlinuz")
    _depmod(tools, unpacked, version)
    _select(modules, target / "root" / "usr/lib/modules" / version)
    _movable_rxe(archive, work, kind, version, target / "root" / "usr/lib/modules" / version / "updates")
    _depmod(tools, target / "root", version)
    _initramfs(modules, tools, _busybox(work, kind), target / "initramfs.gz", work)


def _version(archive: Archive, kind: Architecture) -> str:
    names = [name for name in archive.depends(f"linux-image-{kind.name}") if name.startswith("linux-image-")]
    return names[0].removeprefix("linux-image-")


def _depmod(tools: Path, root: Path, version: str) -> None:
    # The library folder of a merged root is reached as /lib; the unpacked kernel brings only /usr/lib.
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    # depmod is a name of kmod, which goes by how it was called.
    words = command(tools, "usr/sbin/depmod", "-b", str(root), version)
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)


def _dependencies(modules: Path) -> dict[str, list[str]]:
    """Each module by name, with the files to insert for it, itself last. Built-in modules are not listed."""
    table = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        own, _, others = line.partition(":")
        name = Path(own).name.split(".")[0].replace("-", "_")
        table[name] = [*reversed(others.split()), own]
    return table


def _select(modules: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for index in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(modules / index, target / index)
    table = _dependencies(modules)
    for name in recipe.KERNEL.modules:
        for file in table.get(name, []):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(modules / file, target / file)


def _movable_rxe(archive: Archive, work: Path, kind: Architecture, version: str, target: Path) -> None:
    """Compiles the edited rxe (rxe-netns/) inside a root of Debian's own compiler and kernel headers."""
    root = work / "compiler"
    _compiler(archive, work / "compiler-archive", kind, version, root)
    (root / "usr/bin/awk").symlink_to("mawk")
    _rxe_source(archive, work, root / "rxe")
    subprocess.run([sys.executable, str(recipe.RXE_EDIT), str(root / "rxe")], check=True)
    prefix = f"{kind.kernel_name}-linux-gnu-"
    make = f"make -s -C /usr/lib/modules/{version}/build M=/rxe CONFIG_RDMA_RXE=m CROSS_COMPILE={prefix} modules"
    mounts = " && ".join(f"mount --rbind /{name} {root}/{name}" for name in ("dev", "proc"))
    script = f"{mounts} && exec chroot {root} sh -c '{make} && {prefix}strip -g /rxe/*.ko'"
    own_rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    subprocess.run(["unshare", *own_rights, "--mount", "sh", "-c", script], check=True, stdout=subprocess.DEVNULL)
    target.mkdir(parents=True)
    shutil.copy(root / "rxe/rdma_rxe.ko", target / "rdma_rxe.ko")


def _compiler(archive: Archive, folder: Path, kind: Architecture, version: str, root: Path) -> None:
    """The programs are this machine's, whatever they compile for; only the headers are the guest's."""
    headers = f"linux-headers-{version}"
    needed = archive.depends(headers)
    (gcc,) = (name.removesuffix("-for-host") for name in needed if name.startswith("gcc-"))
    (build_tools,) = (name for name in needed if name.startswith("linux-kbuild-"))
    (common,) = (name for name in needed if name.startswith("linux-headers-"))
    own = debian.archive(recipe.KERNEL.suite, folder)
    compiler = f"{gcc}-{kind.kernel_name.replace('_', '-')}-linux-gnu"
    unpack(own.closure(compiler, build_tools, *recipe.KERNEL.compiler), root)
    unpack(archive.download(headers, common), root)


def _rxe_source(archive: Archive, work: Path, target: Path) -> None:
    (source,) = (name for name in archive.depends("linux-source") if name.startswith("linux-source-"))
    unpack(archive.download(source), work / "source")
    (packed,) = (work / "source/usr/src").glob("*.tar.xz")
    wanted = "/drivers/infiniband/sw/rxe/"
    target.mkdir()
    with tarfile.open(packed, "r|xz") as tar:
        for member in tar:
            if wanted in member.name and member.isfile():
                content = tar.extractfile(member)
                assert content is not None
                (target / Path(member.name).name).write_bytes(content.read())


def _busybox(work: Path, kind: Architecture) -> Path:
    """The guest's own, for the tools' one is this machine's."""
    archive = debian.archive(recipe.TOOLS.suite, work / "tools-archive", kind.name)
    unpack(archive.download("busybox-static"), work / "busybox")
    return work / "busybox/usr/bin/busybox"


def _initramfs(modules: Path, tools: Path, busybox: Path, target: Path, work: Path) -> None:
    """Just enough to mount the real root: a static busybox, four modules and guest/first-stage."""
    folder = work / "initramfs"
    for name in ("bin", "dev", "proc", "sys", "modules", "lower", "upper", "root"):
        (folder / name).mkdir(parents=True)
    shutil.copy(busybox, folder / "bin/busybox")
    shutil.copy(recipe.FIRST_STAGE, folder / "init")
    (folder / "init").chmod(0o755)
    table = _dependencies(modules)
    order = dict.fromkeys(file for name in recipe.KERNEL.first_stage for file in table.get(name, []))
    for number, file in enumerate(order):
        packed = (modules / file).read_bytes()
        plain = lzma.decompress(packed) if file.endswith(".xz") else packed
        (folder / "modules" / f"{number:02}-{Path(file).name.removesuffix('.xz')}").write_bytes(plain)
    pack = f"find . | {tools}/usr/bin/busybox cpio -o -H newc | gzip -1 > {target}"
    subprocess.run(pack, shell=True, cwd=folder, check=True, capture_output=True)
