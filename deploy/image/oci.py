"""OCI images as plain tar files, written with the standard library.

An image here is a list of layers (functions that put files into a tar) and a few words of configuration. Times, owners
and order are fixed, so the same files give the same bytes and the same digest on every machine. `ctr images import`,
`skopeo copy oci-archive:...` and `docker load` (25 and later) take the result as it is.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

EPOCH = 0
"""Of every file in a layer, whenever it was made: files that did not change are the same layer in every release."""
EFFORT = 7
"""Of compression: 9 takes three times as long for half a percent."""
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX = "application/vnd.oci.image.index.v1+json"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Fill = Callable[["LayerWriter"], None]


@dataclass(frozen=True)
class ImageConfig:
    """What a Dockerfile would say after the files are in place."""

    architecture: str
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)
    created: int = EPOCH

    def document(self, diff_ids: Sequence[str]) -> dict[str, Any]:
        env = {"PATH": PATH, **self.env}
        config = {
            "Env": [f"{key}={value}" for key, value in env.items()],
            "WorkingDir": self.working_dir,
            "Labels": dict(self.labels),
        }
        if self.entrypoint:
            config["Entrypoint"] = list(self.entrypoint)
        if self.command:
            config["Cmd"] = list(self.command)
        created = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "created": created,
            "architecture": self.architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
            "history": [{"created": created, "created_by": "deploy/image/build.py"} for _ in diff_ids],
        }


class LayerWriter:
    """Puts files into a layer; every entry belongs to root and carries no time."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._folders: set[str] = set()

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(str(Path(path).parent))
        info = self._info(path, tarfile.REGTYPE, mode)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))

    def symlink(self, path: str, target: str) -> None:
        self.folder(str(Path(path).parent))
        info = self._info(path, tarfile.SYMTYPE, 0o777)
        info.linkname = target
        self._tar.addfile(info)

    def folder(self, path: str, mode: int = 0o755) -> None:
        path = path.strip("/")
        if path in {"", "."} or path in self._folders:
            return
        self.folder(str(Path(path).parent))
        self._folders.add(path)
        self._tar.addfile(self._info(path, tarfile.DIRTYPE, mode))

    def tree(self, root: Path, at: str = "", *, keep: Callable[[str], bool] = lambda _: True) -> None:
        """Everything below ``root`` for which ``keep`` (asked with the path in the image) says yes."""
        for path in sorted(root.rglob("*")):
            name = str(Path(at) / path.relative_to(root))
            if not keep(name):
                continue
            if path.is_symlink():
                self.symlink(name, str(path.readlink()))
            elif path.is_dir():
                self.folder(name)
            elif path.is_file():
                self.file(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o111 else 0o644)

    def _info(self, path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(path.strip("/"))
        info.type, info.mode, info.mtime = kind, mode, EPOCH
        return info


@dataclass(frozen=True)
class Layer:
    """A layer as it is stored, and what it is once unpacked."""

    content: bytes
    diff_id: str
    unpacked: int


@dataclass(frozen=True)
class Image:
    """One architecture's image: its manifest's descriptor and all its content by digest."""

    descriptor: Mapping[str, Any]
    blobs: Mapping[str, bytes]
    unpacked: int

    @property
    def digest(self) -> str:
        return str(self.descriptor["digest"])

    @property
    def compressed(self) -> int:
        return sum(map(len, self.blobs.values()))


def make_layer(fill: Fill) -> Layer:
    """The files as a layer; gzip, because every runtime there is takes it."""
    raw = _tar(fill)
    return Layer(gzip.compress(raw, EFFORT, mtime=EPOCH), digest_of(raw), len(raw))


def read_layer(content: bytes) -> Layer:
    """A layer made earlier."""
    raw = gzip.decompress(content)
    return Layer(content, digest_of(raw), len(raw))


def make_image(layers: Sequence[Layer], config: ImageConfig) -> Image:
    """Manifest and configuration around layers."""
    blobs: dict[str, bytes] = {}
    descriptors = [add_blob(blobs, layer.content, LAYER) for layer in layers]
    settings = add_blob(blobs, to_json(config.document([layer.diff_id for layer in layers])), CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": settings, "layers": descriptors}
    top = add_blob(blobs, to_json(manifest), MANIFEST)
    platform = {"architecture": config.architecture, "os": "linux"}
    return Image({**top, "platform": platform}, blobs, sum(layer.unpacked for layer in layers))


def write_archive(output: Path, reference: str, image: Image) -> None:
    """An OCI archive at ``output`` that a runtime imports as ``reference``."""
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f"{output.name}.{os.getpid()}")
    with unfinished.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        writer = LayerWriter(tar)
        for path, content in layout_files([{**image.descriptor, "annotations": names}], image.blobs).items():
            writer.file(path, content)
    unfinished.replace(output)


def layout_files(entries: Sequence[Mapping[str, Any]], blobs: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of an OCI layout, by path."""
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)}
    files = {"oci-layout": to_json({"imageLayoutVersion": "1.0.0"}), "index.json": to_json(index)}
    return files | {f"blobs/sha256/{digest.removeprefix('sha256:')}": blobs[digest] for digest in sorted(blobs)}


def _tar(fill: Fill) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        fill(LayerWriter(tar))
    return buffer.getvalue()


def add_blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, Any]:
    """Put content among the blobs; its descriptor."""
    digest = digest_of(content)
    blobs[digest] = content
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def to_json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
