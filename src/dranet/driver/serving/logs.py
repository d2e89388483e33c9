"""Logs: one line a fact, for people by default, as JSON by flag.

Whom a line is about (`driver.log_fields`) stands after the message in the text form, and in fields of its own in the
JSON form: `pod` and `claim` as NAMESPACE/NAME, `pod_uid`, `claim_uid`, `device`, and the `node`.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from dranet.driver import log_fields

DETAILS = 4
"""The verbosity from which on details are logged, as with the reference."""
_SHOWN = ("pod", "claim", "device")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock}.{int(record.msecs):03d} {record.levelname[:1]} {_short(record.name)}: {record.getMessage()}"
        found = log_fields.fields()
        about = " ".join(f"{name}={found[name]}" for name in _SHOWN if name in found)
        line = f"{line} [{about}]" if about else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        found = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._node,
            **log_fields.fields(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def _short(name: str) -> str:
    return name.removeprefix("dranet.")


def set_up(style: str, verbosity: int, node: str = "") -> None:
    """Log to standard error; verbosity 4 and more shows details."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(node) if style == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # Ours only: what the libraries find worth a detail is a line for every frame on a socket.
    logging.getLogger("dranet").setLevel(logging.DEBUG if verbosity >= DETAILS else logging.INFO)
