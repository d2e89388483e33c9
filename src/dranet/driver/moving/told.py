"""What containers that name a claim are given besides its cards: files and variables, by the claim's receipt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Mount(NamedTuple):
    """One file of the host, and where the container finds it."""

    host: str
    container: str

    def to_cdi(self) -> dict[str, Any]:
        return {"hostPath": self.host, "containerPath": self.container, "options": ["ro", "bind"]}


class Told(NamedTuple):
    """For one claim; the same for every container that names it."""

    mounts: tuple[Mount, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


def write_whole(path: Path, content: bytes) -> None:
    """Readable for every user, and never seen half: a running container keeps the file it was started with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_bytes(content)
    hidden.chmod(0o644)
    hidden.replace(path)
