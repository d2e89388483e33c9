"""kubectl for tests: manifests in as dictionaries, objects out as dictionaries, failures that explain themselves."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cache import BedError

Manifest = dict[str, Any]


class KubectlError(BedError):
    """kubectl said no; the text carries its answer and, for a wait, what the objects looked like."""


@dataclass(frozen=True)
class Kubectl:
    """One kubeconfig and, once `in_namespace` was called, one namespace."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"
    cache: Path | None = None
    """What kubectl remembers of the server. In its own default place, a bed would be taken for the one before it at the
    same address, which may have been of another version."""

    def in_namespace(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def command(self, *arguments: str) -> list[str]:
        cache = ["--cache-dir", str(self.cache)] if self.cache else []
        return [str(self.program), "--kubeconfig", str(self.kubeconfig), *cache, "-n", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        command = self.command(*arguments)
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise KubectlError(f"kubectl {' '.join(arguments)}: no answer in {timeout:.0f} s") from None
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def may(self, account: str, verb: str, what: str) -> bool:
        """`may("system:serviceaccount:default:viewer", "list", "pods")`. A right just given is not in force at once."""
        resource, _, part = what.partition("/")  # kubectl would take the part for an object's name
        asked = ("auth", "can-i", verb, resource, f"--subresource={part}", "--all-namespaces", f"--as={account}")
        done = subprocess.run(self.command(*asked), capture_output=True, text=True)
        if done.stdout.strip() not in ("yes", "no"):
            raise KubectlError(f"kubectl auth can-i {verb} {what}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip() == "yes"

    def apply(self, *manifests: Manifest | str | Path) -> None:
        """Objects as dictionaries, YAML text or files, in order; dictionaries in a row go in one call.

        Warnings of the server do not fail it, unknown fields do.
        """
        for kind, group in itertools.groupby(manifests, type):
            if kind is dict:
                self.run("apply", "-f", "-", stdin=json.dumps(_listed(group)))
                continue
            for text in group:
                where = ("apply", "-f", str(text) if kind is not str else "-")
                self.run(*where, stdin=str(text) if kind is str else None)

    def start(self, *manifests: Manifest) -> None:
        """Apply the objects and wait until each pod among them is ready."""
        self.apply(*manifests)
        for manifest in manifests:
            if manifest["kind"] == "Pod":
                self.wait(f"pod/{manifest['metadata']['name']}", "condition=Ready")

    def remove(self, *manifests: Manifest) -> None:
        """The opposite of `apply`, for the same dictionaries."""
        self.run("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(_listed(manifests)))

    def delete(self, *names: str, grace: int | None = None, wait: bool = True) -> None:
        """`delete("pod/a", "pod/b")`. A grace of 0 is a force deletion, which takes another way through the kubelet."""
        options = [f"--wait={str(wait).lower()}", "--ignore-not-found"]
        if grace is not None:
            options += [f"--grace-period={grace}", *(["--force"] if grace == 0 else [])]
        self.run("delete", *names, *options)

    def get(self, *arguments: str) -> Manifest:
        """`get("pod/a")` for one object, `get("pods")` for a list with `items`."""
        answer: Manifest = json.loads(self.run("get", *arguments, "-o", "json"))
        return answer

    def items(self, *arguments: str) -> list[Manifest]:
        found: list[Manifest] = self.get(*arguments)["items"]
        return found

    def wait(self, name: str, condition: str, seconds: float = 180) -> None:
        """`wait("pod/a", "condition=Ready")`; other conditions: `delete`, `jsonpath={.status.phase}=Failed`.

        What a driver refuses for a moment the kubelet asks for again in its next round, up to 90 s later.
        """
        try:
            self.run("wait", name, f"--for={condition}", f"--timeout={seconds:.0f}s", timeout=seconds + 15)
        except KubectlError as problem:
            raise KubectlError(f"{problem}\n{self.explain(name)}") from None

    def exec(self, pod: str, *command: str, container: str | None = None) -> str:
        chosen = ["-c", container] if container else []
        return self.run("exec", pod, *chosen, "--", *command)

    def logs(self, pod: str, *arguments: str) -> str:
        return self.run("logs", pod, *arguments)

    def explain(self, name: str) -> str:
        """What `kubectl describe` says, for error messages."""
        try:
            return self.run("describe", name)
        except KubectlError as problem:
            return str(problem)


def _listed(manifests: Iterable[Any]) -> Manifest:
    return {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
