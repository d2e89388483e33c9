"""`make mutations`: plant each fault of `planted.py` in a copy of the driver and run the tests that must notice it.

By hand, for it takes some minutes; `ONLY="word"` takes the faults whose names hold the word. The tree itself is never
touched: the copy comes first on the path of the tests and of the daemons they start.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.fault import Fault
from tests.mutations.planted import FAULTS

PROJECT = Path(__file__).resolve().parents[2]


def planted_in(text: str, fault: Fault) -> str:
    """The text with the fault; raises where the list has rotted."""
    if text.count(fault.old) != 1:
        raise LookupError(f"{fault.name}: its text stands {text.count(fault.old)} times in {fault.file}, not once")
    return text.replace(fault.old, fault.new)


def check() -> list[str]:
    """Faults whose text or tests are not there any more."""
    wrong = []
    for fault in FAULTS:
        try:
            planted_in((PROJECT / fault.file).read_text(), fault)
        except (LookupError, OSError) as error:
            wrong.append(str(error))
        wrong += [f"{fault.name}: no {t}" for t in fault.tests if not (PROJECT / t.partition("::")[0]).exists()]
    single = sorted({test for fault in FAULTS for test in fault.tests if "::" in test})
    found = _pytest("--collect-only", *single)
    return wrong if found.returncode == 0 else [*wrong, found.stdout]


def survives(fault: Fault) -> bool:
    """Whether all its tests pass although it is there."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        copy = Path(name) / "src"
        shutil.copytree(PROJECT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy.parent / fault.file
        target.write_text(planted_in(target.read_text(), fault))
        done = _pytest("-x", *fault.tests, PYTHONPATH=f"{copy}:{PROJECT}", PYTHONDONTWRITEBYTECODE="1")
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{fault.name}: pytest could not run:\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
        return done.returncode == 0


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    surroundings = {**os.environ, **environment}
    return subprocess.run(command, cwd=PROJECT, env=surroundings, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.run", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose names hold this word")
    options = parser.parse_args()
    if wrong := check():
        print("\n".join(wrong))
        return 2
    chosen = [fault for fault in FAULTS if options.only in fault.name]
    alive, began = [], time.monotonic()
    for fault in chosen:
        survived = survives(fault)
        print(f"{'SURVIVED' if survived else 'noticed ':9} {fault.name}", flush=True)
        alive += [fault.name] if survived else []
    print(f"{len(chosen)} faults planted, {len(alive)} not noticed, {time.monotonic() - began:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
