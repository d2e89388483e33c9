"""kubeconfig files, read and merged as kubectl does it.

The first file with a cluster, user or context of a name wins; later files add nothing to it. A path in a file is
relative to that file. PyYAML is imported only if a file is not JSON, so the daemon in a pod never needs it.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dranet.kubernetes.api.errors import ConfigError


class Entry(msgspec.Struct, frozen=True):
    """One cluster, user or context, and its file."""

    fields: Mapping[str, Any]
    origin: Path

    def get(self, name: str) -> Any:
        """A field, or None."""
        return self.fields.get(name)

    def path(self, name: str) -> Path:
        """A field that names a file."""
        return self.origin.parent / str(self.fields[name])

    def file(self, name: str) -> Path | None:
        """The file that :meth:`material` is read from, if it is one."""
        return self.path(name) if self.get(name) and not self.get(f"{name}-data") else None

    def material(self, name: str) -> bytes | None:
        """PEM text given inline (base64), which wins, or in a file."""
        if inline := self.get(f"{name}-data"):
            return decoded(inline, f"{self.origin}: {name}-data")
        file = self.file(name)
        try:
            return file.read_bytes() if file is not None else None
        except OSError as error:
            raise ConfigError(f"{self.origin}: cannot read {name} {file}: {error.strerror}") from error


class SelectedContext(msgspec.Struct, frozen=True):
    """Cluster, user and namespace of one context."""

    cluster: Entry
    user: Entry
    namespace: str


class Kubeconfig:
    """One or several merged files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._shown = ", ".join(map(str, paths))
        self._current = ""
        self._entries: dict[str, dict[str, Entry]] = {"context": {}, "cluster": {}, "user": {}}
        for path in paths:
            self._add(path, parse(path))

    def choose(self, context: str | None = None) -> SelectedContext:
        """The named context, or the current one."""
        name = context or self._current
        if not name:
            raise ConfigError(f"{self._shown} has no current-context; choose one with --context")
        chosen = self._find("context", name)
        user = chosen.get("user")
        return SelectedContext(
            cluster=self._find("cluster", chosen.get("cluster")),
            user=self._find("user", user) if user else Entry({}, chosen.origin),
            namespace=chosen.get("namespace") or "default",
        )

    def _add(self, path: Path, raw: Mapping[str, Any]) -> None:
        self._current = self._current or raw.get("current-context") or ""
        for kind, entries in self._entries.items():
            for item in _items(path, raw, f"{kind}s"):
                fields = item.get(kind) or {}
                if not isinstance(fields, Mapping):
                    raise ConfigError(f"{path}: the {kind} {item.get('name')!r} is not a mapping")
                entries.setdefault(str(item.get("name")), Entry(fields, path))

    def _find(self, kind: str, name: str | None) -> Entry:
        entries = self._entries[kind]
        if name is None or name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise ConfigError(f"{self._shown} has no {kind} {name!r} (it has: {known})")
        return entries[name]


def _items(path: Path, raw: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    items = raw.get(section) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ConfigError(f"the kubeconfig {path}: {section} is not a list of mappings")
    return items


def parse(path: Path) -> Mapping[str, Any]:
    """One file; an empty one is an empty configuration."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    try:
        raw = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raw = _parse_yaml(path, text)
    if not isinstance(raw, Mapping | None):
        raise ConfigError(f"the kubeconfig {path} is not a mapping")
    return raw or {}


def _parse_yaml(path: Path, text: bytes) -> Any:
    yaml = importlib.import_module("yaml")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the kubeconfig {path} is neither JSON nor YAML: {reason}") from error


def decoded(text: str, what: str) -> bytes:
    """Decode base64; raises ConfigError with ``what``."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise ConfigError(f"{what} is not base64: {error}") from error
