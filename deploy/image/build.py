"""Build the driver's image with one command and no container engine: ``python deploy/image/build.py``.

Three layers, by how often they change: a minimal Debian with Python, the libraries, and our own code (a megabyte or
two). The first two are kept in the cache under the hash of what they are made of. Byte code is compiled beforehand,
because a daemon that starts on every node should not compile the standard library each time.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import debian
import wheels
from oci import Image, ImageConfig, Layer, LayerWriter, make_image, make_layer, read_layer, write_archive

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
HOST = {"x86_64": "amd64", "aarch64": "arm64"}
RECIPE = tuple(HERE / f"{name}.py" for name in ("build", "debian", "oci", "wheels"))
SITE = f"usr/local/lib/python{debian.PYTHON}/dist-packages"
COMMAND = ("/dranet",)
"""No entry point: manifests name /dranet as the first argument, as they do for the reference driver."""
ENV = {"PYTHONUNBUFFERED": "1"}
COMMANDS = ("dranet", "kubectl-dranet")
LEFT_OUT = tuple((HERE / "left-out.txt").read_text().split())
"""Paths of our package that the image does not need: the sandbox, the demo that runs in it, and `dranet init`."""
COMPILE = "import compileall, sys; sys.pycache_prefix = None; sys.exit(not compileall.main())"
PASSWD = "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


@dataclass(frozen=True)
class Recipe:
    """What an image is made with."""

    cache: Path
    wheel: Path
    """Our own."""
    locked: bool = False
    """Only Debian packages that packages.lock has."""
    created: int = 0
    labels: tuple[tuple[str, str], ...] = ()


def main() -> None:
    """Parse, build, print."""
    options = _options()
    reference = options.reference or f"localhost/dranet:{version()}"
    with tempfile.TemporaryDirectory(prefix="dranet-image-") as scratch:
        cache = Path(scratch) / "cache" if options.no_cache else default_cache()
        output = options.output or default_cache() / f"dranet-{options.arch}.tar"
        cache.mkdir(parents=True, exist_ok=True)
        [wheel] = wheels.build_ours(cache, Path(scratch) / "wheel", "wheel")
        image = build(Recipe(cache, wheel, options.locked), options.arch)
        write_archive(output, reference, image)
    print(f"{output}\n  reference  {reference}\n  digest     {image.digest}")
    print(f"  size       {image.compressed / 1e6:.1f} MB compressed, {image.unpacked / 1e6:.1f} MB unpacked")


def build(recipe: Recipe, architecture: str) -> Image:
    """The image for one architecture."""
    base = debian.root(recipe.cache, architecture, recipe.locked)
    own = debian.root(recipe.cache, HOST[platform.machine()], recipe.locked)
    libraries = f"{architecture}-{wheels.hash_of(wheels.LIBRARIES)}-{own.name}"
    layers = [
        _kept(recipe.cache, f"base-{base.name}-{own.name}", lambda scratch: _base_layer(base, own, scratch)),
        _kept(
            recipe.cache, f"libraries-{libraries}", lambda scratch: _libraries_layer(recipe, own, architecture, scratch)
        ),
        _scratched(lambda scratch: _our_layer(recipe, own, scratch)),
    ]
    labels = {"org.opencontainers.image.title": "dranet", "org.opencontainers.image.version": version()}
    config = ImageConfig(
        architecture, command=COMMAND, env=ENV, labels={**labels, **dict(recipe.labels)}, created=recipe.created
    )
    return make_image(layers, config)


def _kept(cache: Path, name: str, make: Callable[[Path], Layer]) -> Layer:
    """A layer from the cache; the recipe itself is part of its name."""
    path = cache / f"layer-{name}-{wheels.hash_of(*RECIPE)}.tar.gz"
    if path.exists():
        return read_layer(path.read_bytes())
    layer = _scratched(make)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(layer.content)
    unfinished.replace(path)
    return layer


def _scratched(make: Callable[[Path], Layer]) -> Layer:
    with tempfile.TemporaryDirectory(prefix="dranet-layer-") as scratch:
        return make(Path(scratch))


def _base_layer(base: Path, own: Path, scratch: Path) -> Layer:
    _copy(base, scratch / "root")
    _compile(own, scratch / "root", f"usr/lib/python{debian.PYTHON}")
    return make_layer(lambda writer: _base(writer, scratch / "root"))


def _libraries_layer(recipe: Recipe, own: Path, architecture: str, scratch: Path) -> Layer:
    wheels.unpack(wheels.libraries(recipe.cache, architecture), scratch / SITE)
    _compile(own, scratch, SITE)
    return make_layer(lambda writer: writer.tree(scratch))


def _our_layer(recipe: Recipe, own: Path, scratch: Path) -> Layer:
    wheels.unpack([recipe.wheel], scratch / SITE)
    remove_unneeded(scratch / SITE / "dranet")
    _compile(own, scratch, SITE)
    return make_layer(lambda writer: _app(writer, scratch))


def remove_unneeded(package: Path) -> None:
    """Delete the files that the image does not need. Fails if one of them does not exist."""
    for name in LEFT_OUT:
        path = package / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


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
        kept = {name for name in names if debian.wanted(str(inside / name)) or name == "PACKAGES"} - {"__pycache__"}
        return set(names) - kept

    shutil.copytree(root, to, symlinks=True, ignore=unwanted)


def _compile(own: Path, root: Path, folder: str) -> None:
    """Byte code is the same on every architecture, so this machine's build of the interpreter compiles for all."""
    environment = {"PYTHONHOME": str(own / "usr"), "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
    command = debian.python_command(own, HOST[platform.machine()])
    # Its own modules from source, whatever byte code is next to them: what it loaded from byte code it writes with
    # other references, and so with other bytes.
    command += ["-B", "-X", f"pycache_prefix={root}/none", "-c", COMPILE]
    command += ["-q", "-f", "--invalidation-mode=unchecked-hash"]
    command += ["-s", str(root), "-p", "/", str(root / folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"compiling {folder} failed:\n{done.stdout}{done.stderr}")


def version() -> str:
    """The package's own."""
    text = (PROJECT / "src/dranet/__init__.py").read_text()
    return text.split('__version__ = "')[1].split('"')[0]


def default_cache() -> Path:
    """Outside the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet" / "image"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the dranet OCI image without a container engine.")
    parser.add_argument("--arch", choices=sorted(debian.MULTIARCH), default=HOST.get(platform.machine(), "amd64"))
    parser.add_argument("--output", type=Path, help="where to write the OCI archive (default: in the cache)")
    parser.add_argument("--reference", help="the image's name (default: localhost/dranet:<version>)")
    parser.add_argument("--locked", action="store_true", help="fail if Debian's packages differ from packages.lock")
    parser.add_argument("--no-cache", action="store_true", help="fetch and build everything again")
    return parser.parse_args()


if __name__ == "__main__":
    main()
