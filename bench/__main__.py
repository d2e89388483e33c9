"""Run every measurement, or those named, and print one JSON object: ``python -m bench [NAME...]``."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from pathlib import Path


def main() -> int:
    known = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    wanted = sys.argv[1:] or known
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; known are {', '.join(known)}", file=sys.stderr)
        return 2
    figures = {}
    for name in wanted:
        print(f"measuring {name} ...", file=sys.stderr)
        gc.collect()
        gc.freeze()  # each begins as in a process of its own, and never collects what those before it left
        figures[name] = importlib.import_module(f"bench.{name}").measure()
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
