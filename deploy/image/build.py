"""Build the driver's image with one command and no container engine: ``python deploy/image/build.py``.

Two layers: a minimal Debian with Python (changes rarely), and our wheel with its dependencies. Byte code is compiled
beforehand, because a daemon that starts on every node should not compile the standard library each time.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import debian
from oci import ImageConfig, LayerWriter, Written, write_image

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
HOST = {"x86_64": "amd64", "aarch64": "arm64"}
WHEEL_PLATFORMS = {
    "amd64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_17_aarch64"),
}
SITE = f"usr/local/lib/python{debian.PYTHON}/dist-packages"
COMMAND = ("/dranet",)
"""No entry point: manifests name /dranet as the first argument, as they do for the reference driver."""
ENV = {"PYTHONUNBUFFERED": "1"}
COMMANDS = ("dranet", "kubectl-dranet")
PASSWD = "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


def main() -> None:
    """Parse, build, print."""
    options = _options()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet" / "image"
    cache.mkdir(parents=True, exist_ok=True)
    reference = options.reference or f"localhost/dranet:{_version()}"
    output = options.output or cache / f"dranet-{options.arch}.tar"
    with tempfile.TemporaryDirectory(prefix="dranet-image-") as scratch:
        written = build(cache, Path(scratch), options.arch, output, reference)
    print(f"{output}\n  reference  {reference}\n  digest     {written.digest}")
    print(f"  size       {written.compressed / 1e6:.1f} MB compressed, {written.unpacked / 1e6:.1f} MB unpacked")


def build(cache: Path, scratch: Path, architecture: str, output: Path, reference: str) -> Written:
    """The image for one architecture at ``output``."""
    base = debian.root(cache, architecture)
    own = debian.root(cache, HOST[platform.machine()])
    lean = scratch / "base"
    _copy(base, lean)
    site = scratch / "app" / SITE
    _install(_wheels(scratch, architecture), site)
    _compile(own, lean, f"usr/lib/python{debian.PYTHON}")
    _compile(own, scratch / "app", SITE)
    config = ImageConfig(
        architecture,
        command=COMMAND,
        env=ENV,
        labels={"org.opencontainers.image.title": "dranet", "org.opencontainers.image.version": _version()},
    )
    return write_image(output, reference, [lambda w: _base(w, lean), lambda w: _app(w, scratch / "app")], config)


def _base(writer: LayerWriter, root: Path) -> None:
    for name in ("bin", "lib", "lib64", "sbin"):
        writer.symlink(name, f"usr/{name}")
    for name in ("dev", "proc", "root", "run", "sys", "usr/bin", "usr/sbin", "usr/lib64", "var"):
        writer.folder(name)
    writer.folder("tmp", 0o1777)
    writer.symlink("var/run", "/run")
    writer.file("etc/passwd", PASSWD.encode())
    writer.file("etc/group", GROUP.encode())
    writer.file("etc/debian-packages", (root / "PACKAGES").read_bytes())
    writer.symlink("usr/bin/python3", f"python{debian.PYTHON}")
    writer.tree(root, keep=debian.wanted)


def _app(writer: LayerWriter, root: Path) -> None:
    writer.file("dranet", (HERE / "dranet").read_bytes(), 0o755)
    for name in COMMANDS:
        writer.symlink(f"usr/local/bin/{name}", "/dranet")
    writer.tree(root)


def _copy(root: Path, to: Path) -> None:
    """The part of the root that goes into the image."""

    def unwanted(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(root)
        return {name for name in names if not debian.wanted(str(inside / name)) and name != "PACKAGES"}

    shutil.copytree(root, to, symlinks=True, ignore=unwanted)


def target(architecture: str) -> list[str]:
    """What pip must know to fetch wheels for the image and not for this machine."""
    platforms = [f"--platform={name}" for name in WHEEL_PLATFORMS[architecture]]
    return [*platforms, "--implementation=cp", f"--python-version={debian.PYTHON}", "--only-binary=:all:"]


def _wheels(scratch: Path, architecture: str) -> list[Path]:
    """Our wheel and its dependencies for the image's Python, as wheels, each with the hash that lock.py wrote down."""
    folder = scratch / "dependencies"
    locked = ["--require-hashes", f"--requirement={HERE / 'requirements.txt'}"]
    pip("download", "--no-deps", f"--dest={folder}", *target(architecture), *locked)
    tools = scratch / "tools"
    pip(
        "install",
        "--no-deps",
        f"--target={tools}",
        "--require-hashes",
        f"--requirement={HERE / 'build-requirements.txt'}",
    )
    ours = scratch / "wheel"
    # Without isolation, which would fetch the newest build tool there is, whoever made it.
    pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={ours}", str(PROJECT), PYTHONPATH=str(tools))
    return sorted(folder.glob("*.whl")) + sorted(ours.glob("*.whl"))


def _install(wheels: list[Path], site: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            if any(".data/" in name for name in archive.namelist()):
                raise SystemExit(f"{wheel.name} has files outside the package folder; the recipe must learn about them")
            archive.extractall(site)


def _compile(own: Path, root: Path, folder: str) -> None:
    """Byte code is the same on every architecture, so this machine's build of the interpreter compiles for all."""
    environment = {"PYTHONHOME": str(own / "usr"), "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
    command = debian.python_command(own, HOST[platform.machine()])
    command += ["-m", "compileall", "-q", "-f", "--invalidation-mode=unchecked-hash"]
    command += ["-s", str(root), "-p", "/", str(root / folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"compiling {folder} failed:\n{done.stdout}{done.stderr}")


def pip(*arguments: str, **environment: str) -> None:
    """This interpreter's pip; its complaint where it fails."""
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"pip {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")


def _version() -> str:
    text = (PROJECT / "src/dranet/__init__.py").read_text()
    return text.split('__version__ = "')[1].split('"')[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the dranet OCI image without a container engine.")
    parser.add_argument("--arch", choices=sorted(debian.MULTIARCH), default=HOST.get(platform.machine(), "amd64"))
    parser.add_argument("--output", type=Path, help="where to write the OCI archive (default: in the cache)")
    parser.add_argument("--reference", help="the image's name (default: localhost/dranet:<version>)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
