"""The page as one HTML file with inline style and script, whose hashes are in the Content-Security-Policy.

There is no build step: browsers run the files in ``page/``, in the order below. Data of the cluster is sent as JSON and
shown as text; the policy prevents any other script.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import msgspec

_SCRIPTS = (
    "state.js",
    "drawing.js",
    "nodes.js",
    "zoom.js",
    "map.js",
    "commands.js",
    "job.js",
    "history.js",
    "traffic.js",
    "panel.js",
    "table.js",
    "links.js",
    "main.js",
)


def page(world: Any = None) -> tuple[str, str]:
    """The HTML and its Content-Security-Policy; with `world` inside it needs no server."""
    html, style, script = _parts()
    policy = _policy(style, script)
    data = "" if world is None else _escape_json(msgspec.json.encode(world).decode())
    filled = html.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{script}}", script)
    return filled.replace("{{world}}", data), f"{policy}; frame-ancestors 'none'"


def login_page(message: str) -> tuple[str, str]:
    """The form for a token, with an error message, and its policy, which permits no script."""
    style = "\n" + _read("page.css")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return _read("login.html").replace("{{style}}", style).replace("{{message}}", escape(message)), policy


@cache
def _parts() -> tuple[str, str, str]:
    return _read("page.html"), "\n" + _read("page.css"), "\n" + "\n".join(_read(name) for name in _SCRIPTS)


@cache
def _read(name: str) -> str:
    return (resources.files(__package__) / "page" / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _escape_json(json: str) -> str:
    """JSON that cannot end its HTML element."""
    return json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
