"""The README's picture: one scenario of the demo, run now, as an SVG of its terminal (`make demo-picture`).

It is what the demo printed, less its spinner and the lines of LEFT_OUT. No font is fetched from anywhere: a reader's
own monospaced one is used.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/images/demo.svg"
SCENARIO, WIDTH = "nvidia-dra", 108
LEFT_OUT = ("Summary", "scenario ", "nvidia-dra  2 ")
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {height}">
<title>dranet demo: two pods get two GPUs and two NICs each below one PCIe root, and return them</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#292929"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">
{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "dranet", "demo", SCENARIO]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"\x1b[1m$ dranet demo {SCENARIO}\x1b[0m\n{still(done.stdout)}"))
    svg = console.export_svg(title="dranet demo", code_format=FORMAT, unique_id="demo", font_aspect_ratio=0.61)
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def still(printed: str) -> str:
    """What stays on the screen: of a line that was written over, its last writing; no cursor commands."""
    lines = [re.sub(r"\x1b\[\?25[lh]|\x1b\[1A", "", line).rpartition("\x1b[2K")[2] for line in printed.split("\n")]
    kept = [line.replace("\r", "") for line in lines if not _plain(line).startswith(LEFT_OUT) and "..." not in line]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in kept)).strip("\n")


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line).strip()


if __name__ == "__main__":
    main()
