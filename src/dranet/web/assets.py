"""The page as one HTML file: its style and its script are put inside, and their hashes into the security policy.

There is no build step: the files in ``page/`` are what people read and what browsers run, in the order given here.
Whatever comes from the cluster travels as JSON and is shown as text; the policy makes sure that nothing else runs.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import msgspec

SCRIPTS = (
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
    "main.js",
)


def page(world: Any = None) -> tuple[str, str]:
    """The HTML and its Content-Security-Policy; with a world inside it needs no server."""
    html, style, script = _parts()
    policy = _policy(style, script)
    data = "" if world is None else _harmless(msgspec.json.encode(world).decode())
    filled = html.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{script}}", script)
    return filled.replace("{{world}}", data), f"{policy}; frame-ancestors 'none'"


def login_page(said: str) -> tuple[str, str]:
    """Where a token is handed over, with what is to say about the last one; and its policy: no script at all."""
    style = "\n" + _read("page.css")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return _read("login.html").replace("{{style}}", style).replace("{{said}}", escape(said)), policy


@cache
def _parts() -> tuple[str, str, str]:
    return _read("page.html"), "\n" + _read("page.css"), "\n" + "\n".join(_read(name) for name in SCRIPTS)


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


def _harmless(json: str) -> str:
    """JSON that cannot end the element it stands in."""
    return json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
