"""containerd's configuration with NRI on, every other line of it as it was."""

from __future__ import annotations

import re
import tomllib

from dranet.model.errors import DranetError

PLUGIN = "io.containerd.nri.v1.nri"
HEADER = re.compile(rf"""^\[plugins\.(["']){re.escape(PLUGIN)}\1\]\s*$""")
SECTION = f"""
# Added by dranet, which moves cards into pods through NRI.
[plugins."{PLUGIN}"]
  disable = false
  socket_path = "/var/run/nri/nri.sock"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "5s"
"""


def with_nri(text: str) -> str:
    """A configuration of containerd with NRI on; the same text where it already says so."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DranetError(f"containerd's configuration cannot be read: {error}; it was left alone") from error
    if text.strip() and read.get("version", 1) not in {2, 3, 4}:
        raise DranetError(f"containerd's configuration is of version {read.get('version', 1)}; NRI needs 2 or later")
    said = read.get("plugins", {}).get(PLUGIN)
    if said is None:
        return (text.rstrip("\n") + "\n" if text.strip() else "version = 2\n") + SECTION
    return _switched(text) if said.get("disable", False) else text


def _switched(text: str) -> str:
    """`disable = true` of NRI's own section as `false`; every other line as it was."""
    lines, inside = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            inside = bool(HEADER.match(line.strip()))
        elif inside and re.match(r"\s*disable\s*=", line):
            lines[number] = re.sub(r"=\s*true", "= false", line, count=1)
    changed = "".join(lines)
    if tomllib.loads(changed)["plugins"][PLUGIN].get("disable", False):
        raise DranetError(
            f'NRI is off in a way that is not [plugins."{PLUGIN}"] with disable = true; switch it on by hand'
        )
    return changed
