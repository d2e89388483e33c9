"""Container images made from files, without a container builder or a registry.

An image is an OCI layout in a tar file, which `ctr images import` takes as it is. Layers carry no times and a fixed
order, so the same files give the same digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import parts
from .build import GoProgram
from .cache import cached

BUSYBOX_IMAGE = "localhost/busybox:bed"
BUSYBOX_COMMANDS = (
    "sh sleep ip ls cat nc ping httpd wget ifconfig echo env grep stat head tail true false test mkdir rm mount "
    "readlink sed awk tr cut sort wc dd nslookup id hostname ps kill touch arping od seq timeout"
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FOLDERS = ("bin", "etc", "tmp", "proc", "sys", "dev", "run", "var", "usr")
SKIPPED = {"dev", "proc", "sys"}
"""Top folders of a root whose content belongs to the machine it was made on."""


@dataclass(frozen=True)
class ImageConfig:
    """What a Dockerfile would say after the files are in place."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"

    def document(self) -> dict[str, Any]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, **self.env}
        return {
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
            "Env": [f"{key}={value}" for key, value in env.items()],
            "WorkingDir": self.working_dir,
        }


def image_from_root(root: Path, output: Path, reference: str, config: ImageConfig) -> None:
    """An image of one layer with everything below `root`."""
    with tarfile.open(layer := output.with_suffix(".layer"), "w") as tar:
        for path in sorted(root.rglob("*")):
            if path.relative_to(root).parts[0] not in SKIPPED or path.parent == root:
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=_plain)
    _write_image(layer, output, reference, config)


def busybox_image() -> Path:
    """The image of plain pods and of the sandbox itself."""
    return _cached_image("busybox", _busybox_layer, BUSYBOX_IMAGE, ImageConfig(("/bin/busybox",), ("sleep", "1000000")))


def program_image(program: GoProgram) -> tuple[Path, str]:
    """A static Go program on top of busybox, at `/usr/bin/<name>`; the tar file and the image's name."""
    reference = f"localhost/{program.name}:{program.version}"
    built = parts.add_on(program)

    def layer(tar: tarfile.TarFile) -> None:
        _busybox_layer(tar)
        _add_file(tar, f"usr/bin/{program.name}", built.read_bytes(), 0o755)

    key = f"{program.name}-{program.version}"
    return _cached_image(key, layer, reference, ImageConfig((f"/usr/bin/{program.name}",))), reference


def _cached_image(key: str, fill: Callable[[tarfile.TarFile], None], reference: str, config: ImageConfig) -> Path:
    def build(folder: Path) -> None:
        with tarfile.open(layer := folder / "image.layer", "w") as tar:
            fill(tar)
        _write_image(layer, folder / "image.tar", reference, config)

    return cached(f"images/{key}", build) / "image.tar"


def _busybox_layer(tar: tarfile.TarFile) -> None:
    for name in FOLDERS:
        tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
    tar.addfile(_entry("usr/bin", tarfile.DIRTYPE))
    _add_file(tar, "bin/busybox", parts.busybox().read_bytes(), 0o755)
    for command in BUSYBOX_COMMANDS.split():
        tar.addfile(_entry(f"bin/{command}", tarfile.SYMTYPE, link="busybox"))
    _add_file(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)
    _add_file(tar, "etc/group", b"root:x:0:\n", 0o644)


def _write_image(layer: Path, output: Path, reference: str, config: ImageConfig) -> None:
    """Wrap a finished layer into an OCI layout; the layer file is used up."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    with open(layer, "rb") as file:
        layer_digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    settings = _json(
        architecture=architecture,
        os="linux",
        config=config.document(),
        rootfs={"type": "layers", "diff_ids": [layer_digest]},
    )
    manifest = _json(
        schemaVersion=2,
        mediaType="application/vnd.oci.image.manifest.v1+json",
        config=_descriptor("config.v1+json", _digest(settings), len(settings)),
        layers=[_descriptor("layer.v1.tar", layer_digest, layer.stat().st_size)],
    )
    names = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    listed = _descriptor("manifest.v1+json", _digest(manifest), len(manifest))
    listed |= {"platform": {"os": "linux", "architecture": architecture}, "annotations": names}
    index = _json(schemaVersion=2, mediaType="application/vnd.oci.image.index.v1+json", manifests=[listed])
    with tarfile.open(output, "w") as tar:
        _add_file(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        _add_file(tar, "index.json", index, 0o644)
        for blob in (settings, manifest):
            _add_file(tar, _blob_name(_digest(blob)), blob, 0o644)
        tar.add(layer, _blob_name(layer_digest), filter=_plain)
    layer.unlink()


def _json(**content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _blob_name(digest: str) -> str:
    return "blobs/sha256/" + digest.partition(":")[2]


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": size}


def _entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, link
    return entry


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = _entry(name, mode=mode)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owner root and no time, independent of who built it and when."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    return entry
