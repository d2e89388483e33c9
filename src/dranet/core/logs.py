"""Logging with a fixed message and facts as fields.

    log = get_logger(__name__)
    log.info("Attached devices", devices=8, duration_ms=147)
    with log_context(pod=pod, claim=claim):
        log.warning("Early device setup failed; will retry during attach", error=error)

The text form is ``Attached devices devices=8 duration_ms=147 claim=ns/name``. The JSON form has every field as a key.
Pods, claims, devices and the node always have the keys ``pod``, ``claim``, ``device`` and ``node``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol


class ObjectName(Protocol):
    """A pod or a claim."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class Message:
    """A log message and its fields. Its text is built only when a handler writes the line."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: Mapping[str, object]) -> None:
        self.text = text
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.text, *(f"{key}={_quoted(value)}" for key, value in self.fields.items())])


class FieldLogger:
    """A standard library logger whose methods take fields as keyword arguments."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, text: str, **fields: object) -> None:
        self._log(logging.DEBUG, text, fields)

    def info(self, text: str, **fields: object) -> None:
        self._log(logging.INFO, text, fields)

    def warning(self, text: str, **fields: object) -> None:
        self._log(logging.WARNING, text, fields)

    def error(self, text: str, exc_info: Any = None, **fields: object) -> None:
        self._log(logging.ERROR, text, fields, exc_info)

    def exception(self, text: str, **fields: object) -> None:
        self._log(logging.ERROR, text, fields, exc_info=True)

    def _log(self, level: int, text: str, fields: Mapping[str, object], exc_info: Any = None) -> None:
        if self._logger.isEnabledFor(level):
            # Two frames up: the caller of info(), not this module.
            self._logger.log(level, Message(text, fields), exc_info=exc_info, stacklevel=3)


def get_logger(name: str) -> FieldLogger:
    """The logger of a module."""
    return FieldLogger(logging.getLogger(name))


class log_context:
    """Every line logged inside names these objects, and those of the enclosing contexts.

    The context follows the work into tasks and into `asyncio.to_thread`; other threads have to copy it. The names are
    formatted only when a line is written: most hooks write none.
    """

    def __init__(
        self, *, pod: ObjectName | None = None, claim: ObjectName | None = None, device: str | None = None
    ) -> None:
        self._entry: _Entry = ((("pod", pod), ("claim", claim)), device)

    def __enter__(self) -> None:
        self._token = _CONTEXT.set((*_CONTEXT.get(), self._entry))

    def __exit__(self, *_: object) -> None:
        _CONTEXT.reset(self._token)


_Entry = tuple[tuple[tuple[str, ObjectName | None], ...], str | None]
_CONTEXT: ContextVar[tuple[_Entry, ...]] = ContextVar("log context", default=())


def context_fields() -> Mapping[str, str]:
    """The objects that a line logged now is about."""
    found: dict[str, str] = {}
    for objects, device in _CONTEXT.get():
        for kind, named in objects:
            if named is not None:
                found |= {kind: f"{named.namespace}/{named.name}", f"{kind}_uid": named.uid}
        if device is not None:
            found["device"] = device
    return found


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(character in text for character in ' "=\n'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
