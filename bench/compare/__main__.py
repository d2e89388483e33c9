"""This tree compared with an earlier one: ``python -m bench.compare OLD_TREE [WORD...]``.

Words choose measurements by name.

Make the earlier tree with ``git worktree add OLD_TREE COMMIT`` and its ``make setup``. Old and new take turns, so both
see the same noise, and medians are compared; more than 5 % worse is marked and gives exit status 1. Times are CPU time
where the kernel does not make us wait. What is inside a tree is measured by that tree's own `bench`, which knows its
names. Code is compiled beforehand, as in the image: else a start would count lines and comments.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.planning import CONSTRAINT, SHAPE, TEXT

NEW = Path(__file__).resolve().parents[2]
RUNS = 5
NOISE = 0.05
COMMANDS = ("run", "inventory", "status", "plan", "explain", "lint", "topo", "suggest", "shape", "report", "serve")
NODES = 50
HOOKS = "from bench import driver; driver.ROUNDS = 4; measured = driver.measure()"
SCAN = "from bench import inventory; measured = inventory.measure()"

Figures = dict[str, float]


class Tree:
    """One of the two, with its interpreter and its compiled code."""

    def __init__(self, root: Path, compiled: Path) -> None:
        self._root = root
        self._python = str(root / ".venv/bin/python")
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, "PYTHONPYCACHEPREFIX": str(compiled), "BENCH_CYCLES": "100"}

    def cpu_ms(self, *arguments: str) -> float:
        """CPU time of a whole command."""
        before = _children()
        self._run("-m", "dranet", *arguments)
        return (_children() - before) * 1000

    def measured(self, program: str) -> dict[str, Any]:
        """What a program of that tree's own names `measured`."""
        found: dict[str, Any] = json.loads(self._run("-c", f"import json; {program}; print(json.dumps(measured))"))
        if "skipped" in found:
            raise SystemExit(f"{self._root}: {found['skipped']}")
        return found

    def steps(self) -> Figures:
        """The CPU milliseconds of `inside`, run with what that tree imports."""
        found = json.loads(self._run("-c", Path(__file__).with_name("inside.py").read_text()))
        return {f"{name}, CPU ms": value for name, value in found.items()}

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._python, *arguments], cwd=self._root, env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            asked = " ".join(arguments).partition("\n")[0]
            raise SystemExit(f"{self._root}: {asked} failed: {done.stderr.strip()[-400:]}")
        return done.stdout


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _start(command: str) -> Callable[[Tree], Figures]:
    return lambda tree: {f"start of dranet {command}, CPU ms": tree.cpu_ms(command, "--help")}


def _plan(manifest: Path) -> Callable[[Tree], Figures]:
    manifest.write_text(TEXT.format(count=1, pods=NODES * 8, constraint=CONSTRAINT))
    name = f"plan of {NODES * 8} pods on {NODES} nodes, CPU ms"
    return lambda tree: {name: tree.cpu_ms("plan", "-f", str(manifest), "--shape", f"{SHAPE}={NODES}", "-o", "json")}


def _scan(tree: Tree) -> Figures:
    found = tree.measured(SCAN)
    return {
        "scan of 500 links, CPU ms": found["scan"]["ours_ms"]["cpu"],
        "one link event, CPU ms": found["link_event"]["ours_cpu_ms"]["median"],
        "memory after one look, MiB": found["process"]["rss_mib_after_one_look"],
    }


def _hooks(tree: Tree) -> Figures:
    found = tree.measured(HOOKS)
    figures = {
        f"{step} of {nics.replace('_', ' ')}, ms": found[nics][f"{step}_ms_p50"]
        for nics in ("one_nic", "eight_nics")
        for step in ("prepare", "attach", "detach")
    }
    daemon = found["daemon"]
    return figures | {
        "attach of eight NICs, own CPU ms a NIC": found["eight_nics"]["own_user_cpu_ms_per_nic"],
        "hook without claims, us": daemon["noop_hook_us_p50"],
        "daemon's memory after its start, MiB": daemon["rss_mb_after_start"],
        "daemon's memory after 100 pods, MiB": daemon["rss_mb_after_each_tenth"][-1],
    }


def compare(old: Tree, new: Tree, probe: Callable[[Tree], Figures]) -> Iterator[tuple[str, float, float]]:
    """Medians of both, name by name."""
    seen: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(RUNS + 1):
        for side, tree in enumerate((old, new)):
            for name, value in probe(tree).items():
                if number:  # the first fills caches, the compiled code among them
                    seen.setdefault(name, ([], []))[side].append(value)
    for name, (before, after) in seen.items():
        yield name, statistics.median(before), statistics.median(after)


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    root, words = Path(arguments[0]).resolve(), arguments[1:]
    worse = 0
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        old, new = (Tree(tree, Path(folder)) for tree in (root, NEW))
        probes = {f"start {command}": _start(command) for command in COMMANDS}
        probes |= {"plan": _plan(Path(folder, "pods.yaml")), "steps": Tree.steps, "scan": _scan, "hooks": _hooks}
        print("| | before | after | |\n| --- | ---: | ---: | ---: |")
        for key, probe in probes.items():
            if words and not any(word in key for word in words):
                continue
            for name, before, after in compare(old, new, probe):
                change = after / before - 1
                mark = " worse" if change > NOISE else ""
                worse += bool(mark)
                print(f"| {name} | {before:.4g} | {after:.4g} | {change:+.0%}{mark} |", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
