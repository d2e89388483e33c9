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
from pathlib import Path
from typing import IO, Any

EPOCH = 0
CREATED = "1970-01-01T00:00:00Z"
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
        return {
            "created": CREATED,
            "architecture": self.architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
            "history": [{"created": CREATED, "created_by": "deploy/image/build.py"} for _ in diff_ids],
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
class Blob:
    """Content by its digest."""

    digest: str
    size: int
    media_type: str

    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Written:
    """What came out: the manifest's digest, and bytes as stored and as unpacked."""

    digest: str
    compressed: int
    unpacked: int


def write_image(output: Path, reference: str, layers: Sequence[Fill], config: ImageConfig) -> Written:
    """An OCI archive at ``output`` that a runtime imports as ``reference``."""
    blobs: dict[str, bytes] = {}
    descriptors, diff_ids, unpacked = [], [], 0
    for fill in layers:
        raw = _tar(fill)
        unpacked += len(raw)
        diff_ids.append(_digest(raw))
        descriptors.append(_add(blobs, gzip.compress(raw, 9, mtime=EPOCH), LAYER).descriptor())
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _add(blobs, _json(config.document(diff_ids)), CONFIG).descriptor(),
        "layers": descriptors,
    }
    top = _add(blobs, _json(manifest), MANIFEST)
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f"{output.name}.{os.getpid()}")
    with unfinished.open("wb") as file:
        _write_layout(file, blobs, _index(top, reference, config.architecture))
    unfinished.replace(output)
    return Written(top.digest, sum(map(len, blobs.values())), unpacked)


def _index(manifest: Blob, reference: str, architecture: str) -> dict[str, Any]:
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    platform = {"architecture": architecture, "os": "linux"}
    entry = {**manifest.descriptor(), "platform": platform, "annotations": names}
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}


def _write_layout(file: IO[bytes], blobs: Mapping[str, bytes], index: Mapping[str, Any]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        writer = LayerWriter(tar)
        writer.file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        writer.file("index.json", _json(index))
        for digest in sorted(blobs):
            writer.file(f"blobs/sha256/{digest.removeprefix('sha256:')}", blobs[digest])


def _tar(fill: Fill) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        fill(LayerWriter(tar))
    return buffer.getvalue()


def _add(blobs: dict[str, bytes], content: bytes, media_type: str) -> Blob:
    digest = _digest(content)
    blobs[digest] = content
    return Blob(digest, len(content), media_type)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
