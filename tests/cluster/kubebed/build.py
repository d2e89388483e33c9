"""Go programs built from their published modules: Kubernetes itself, helm, operators, other drivers.

`go install k8s.io/kubernetes/cmd/kubelet@v1.36.4` does not work: that module's go.mod points its staging modules
(`k8s.io/api` and thirty more) at folders which the published module does not contain. The way out is a module of
our own whose go.mod repeats the published one, with every staging module replaced by its release of the same number
(Kubernetes 1.36.4 is `k8s.io/api` v0.36.4). As the versions are those Kubernetes was tested with, nothing has to be
resolved. The same way is used for every other program, because `go install` refuses any go.mod with a `replace` in
it.

The Go proxy and checksum settings are those of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .cache import BedError, cached, say
from .toolchain import go

STAGING = re.compile(r"^\s*(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)
WRAPPER_NAME = "example.invalid/wrapper"


@dataclass(frozen=True)
class GoProgram:
    """One command of a published module."""

    name: str
    module: str
    version: str
    package: str
    """Import path below the module, for instance `cmd/kubelet`; empty for the module's root."""
    stamps: tuple[str, ...] = ()
    """Linker `-X` settings. Kubernetes without its version stamps fails in its compatibility-version logic."""
    source: Path | None = None
    """The folder of a program of our own that uses the module; None: the program is the module's."""
    tags: str = ""
    cgo: bool = False
    """For a program with parts in C; needs a C compiler."""

    @property
    def key(self) -> str:
        name = f"go/{self.name}-{self.version}"
        if self.source is None:
            return name
        content = b"".join(path.read_bytes() for path in sorted(self.source.glob("*.go")))
        return f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"

    @property
    def import_path(self) -> str:
        if self.source is not None:
            return "."
        return f"{self.module}/{self.package}" if self.package else self.module


def kubernetes_program(name: str, version: str) -> GoProgram:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "0",
        "gitTreeState": "clean",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = tuple(f"{package}.{fact}={value}" for package in packages for fact, value in facts.items())
    return GoProgram(name, "k8s.io/kubernetes", version, f"cmd/{name}", stamps)


def binary(program: GoProgram) -> Path:
    """The built program, from the cache."""
    return cached(program.key, lambda folder: _build(program, folder)) / program.name


def module_dir(module: str, version: str) -> Path:
    """The unpacked source of a module: manifests and CRDs that projects ship with their code are read from here."""
    answer = subprocess.run(
        [go(), "mod", "download", "-json", f"{module}@{version}"],
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
    )
    if answer.returncode != 0:
        raise BedError(f"cannot download Go module {module}@{version}: {answer.stdout}{answer.stderr}")
    return Path(json.loads(answer.stdout)["Dir"])


def _build(program: GoProgram, folder: Path) -> None:
    source = module_dir(program.module, program.version)
    with tempfile.TemporaryDirectory(prefix="bed-wrapper-") as wrapper:
        (Path(wrapper) / "go.mod").write_text(wrapper_go_mod(program, source))
        (Path(wrapper) / "go.sum").write_text((source / "go.sum").read_text())
        for file in sorted(program.source.glob("*.go")) if program.source else ():
            shutil.copy(file, wrapper)
        _go_build(program, Path(wrapper), folder / program.name)


def wrapper_go_mod(program: GoProgram, source: Path) -> str:
    """The published go.mod under another name, requiring the module it came from."""
    text = (source / "go.mod").read_text()
    text = re.sub(r"^module .*$", f"module {WRAPPER_NAME}", text, count=1, flags=re.MULTILINE)
    # Staging modules carry the server's minor and patch number under major version 0.
    text = STAGING.sub(lambda m: f"\t{m[1]} => {m[1]} v0.{program.version.split('.', 1)[1]} //", text)
    return f"{text}\nrequire {program.module} {program.version}\n"


def _go_build(program: GoProgram, wrapper: Path, output: Path) -> None:
    ldflags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in program.stamps)])
    # -mod=mod lets go add the checksums of the modules we switched in; two jobs at a time leave the machine usable.
    command = ["nice", go(), "build", "-mod=mod", "-p=2", "-trimpath", "-ldflags", ldflags]
    command += ["-tags", program.tags, "-o", str(output)]
    environment = {**os.environ, "CGO_ENABLED": str(int(program.cgo)), "GOWORK": "off"}
    say(f"go build {program.import_path}@{program.version}")
    done = subprocess.run([*command, program.import_path], cwd=wrapper, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise BedError(f"cannot build {program.import_path}@{program.version}:\n{done.stderr[-4000:]}")
