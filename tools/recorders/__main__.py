"""Records answers of a real Kubernetes: `python -m tools.recorders KIND --kubernetes 1.37.2 [--write]`.

KIND is allocator, cel, regex or all. The questions are those of the recordings in tests/data, so every version is asked
the same. Without --write the answers are compared with what is committed for that version, byte by byte. Differences
are shown. Recordings of whole clusters need a running scheduler: `WORLDS_OUT=folder make e2e` makes them.

The program that asks (answers/) is built from the published modules of that Kubernetes, once, into the cache of the
cluster tier.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dranet.scheduler.releases import Gate
from tests.cluster.kubebed.build import GoProgram, binary, kubernetes_program
from tools.recorders.questions import feature_questions

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

DRA_GATES = [gate for gate in Gate if gate.startswith("DRA")]


@dataclass(frozen=True)
class Recording:
    """Questions of one kind, and the file with the answers of one version and one set of gates."""

    kind: str
    questions: Path
    gates: str = "default"
    generated: bool = False
    """The questions are those of `feature_questions`; the file has them with the answers."""

    def committed(self, version: str) -> Path:
        """Go's regexp has no Kubernetes version; the first recordings, of 1.36.4, have names of their own."""
        if self.kind == "regex" or (version == "1.36.4" and self.gates == "default"):
            return self.questions
        if self.generated:
            return DATA / f"{self.kind}-features-{version}-{self.gates}-gates.jsonl.gz"
        suffix = "" if self.gates == "default" else f"-{self.gates}-gates"
        return DATA / f"{self.kind}-{version}{suffix}.jsonl.gz"


RECORDINGS = (
    Recording("allocator", DATA / "allocator-1.jsonl.gz"),
    Recording("allocator", DATA / "allocator-1.jsonl.gz", "all"),
    Recording("allocator", DATA / "allocator-features.jsonl.gz", "all", generated=True),
    Recording("allocator", DATA / "allocator-features.jsonl.gz", generated=True),
    Recording("cel", DATA / "cel-1.jsonl.gz"),
    Recording("cel", DATA / "cel-1.jsonl.gz", "all"),
    Recording("regex", DATA / "regex-1.jsonl.gz"),
)


def recorder(version: str) -> Path:
    """The program with the code of that Kubernetes."""
    stamps = kubernetes_program("kube-scheduler", f"v{version}").stamps
    source = Path(__file__).parent / "answers"
    return binary(GoProgram("recorder", "k8s.io/kubernetes", f"v{version}", "", stamps, source))


def ask(program: Path, recording: Recording, version: str, questions: Sequence[str], gates: str) -> list[str]:
    options = [f"--kind={recording.kind}", f"--version={version}", f"--feature-gates={gates}"]
    done = subprocess.run(
        [program, *options], input="".join(questions), capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        raise SystemExit(f"{recording.kind} of {version}: {done.stderr[-2000:]}")
    sys.stderr.write(done.stderr)
    return done.stdout.splitlines(keepends=True)


def known_gates(program: Path) -> str:
    """All DRA gates that this Kubernetes has, on."""
    on = []
    for gate in DRA_GATES:
        tried = subprocess.run(
            [program, "--kind=regex", f"--feature-gates={gate}=true"], input="", capture_output=True, text=True
        )
        on += [f"{gate}=true"] if tried.returncode == 0 else []
    return ",".join(on)


def read(file: Path) -> list[str]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return stream.readlines()


def write(file: Path, lines: Sequence[str]) -> None:
    """The same lines give the same bytes: no time and no name in the header."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
        stream.write("".join(lines).encode())
    file.write_bytes(packed.getvalue())


def sample(lines: Sequence[str], kind: str, count: int) -> list[str]:
    """Evenly spread; the first line of the CEL questions has the devices."""
    head, rest = (lines[:1], lines[1:]) if kind == "cel" else ([], lines)
    step = max(1, len(rest) // count) if count else 1
    return [*head, *rest[::step]]


def differences(recorded: Sequence[str], committed: Sequence[str], kind: str) -> list[str]:
    """Committed lines may be more: a line is found by its question."""
    known = {_question(line, kind): line for line in committed}
    return [
        f"- {known.get(_question(line, kind), '(not committed)').strip()[:400]}\n+ {line.strip()[:400]}"
        for line in recorded
        if known.get(_question(line, kind)) != line
    ]


def _question(line: str, kind: str) -> str:
    asked = json.loads(line)
    names = {"allocator": ("id",), "cel": ("expression",), "regex": ("pattern", "text")}[kind]
    return json.dumps([asked.get(name) for name in names])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.recorders", description=__doc__)
    parser.add_argument("kind", choices=["allocator", "cel", "regex", "all"], nargs="?", default="all")
    parser.add_argument("--kubernetes", default="1.36.4", help="an exact version (default 1.36.4)")
    parser.add_argument("--gates", choices=["default", "all"], help="only recordings with these feature gates")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="ask about N questions, evenly spread")
    parser.add_argument("--write", action="store_true", help="write the answers to tests/data instead of comparing")
    options = parser.parse_args()
    program = recorder(options.kubernetes)
    wrong = 0
    for recording in RECORDINGS:
        if options.kind not in ("all", recording.kind) or options.gates not in (None, recording.gates):
            continue
        file = recording.committed(options.kubernetes)
        if not options.write and not file.exists():
            print(f"{recording.kind}, {recording.gates} gates: nothing committed for {options.kubernetes}")
            continue
        gates = known_gates(program) if recording.gates == "all" else ""
        # A committed sample is compared whole: its own lines are the questions.
        source = recording.questions if options.write else file
        asked = list(feature_questions()) if options.write and recording.generated else read(source)
        questions = sample(asked, recording.kind, options.sample)
        answers = ask(program, recording, options.kubernetes, questions, gates)
        if options.write and file == recording.questions:
            print(f"{recording.kind}: not written, because {file.name} has the questions")
        elif options.write:
            write(file, answers)
            print(f"{recording.kind}, {recording.gates} gates: wrote {len(answers)} lines to {file.relative_to(ROOT)}")
        if options.write:
            continue
        different = differences(answers, read(file), recording.kind)
        print(
            f"{recording.kind}, {recording.gates} gates: {len(answers)} asked, {len(different)} differ from {file.name}"
        )
        print("\n".join(different[:5]), end="\n" if different else "")
        wrong += len(different)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
