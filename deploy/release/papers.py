"""The papers of a release: notes, checksums, and the statement of where it comes from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import debian
import wheels
from facts import NAME, PROJECT, PROVENANCE, Facts

SUMS = "SHA256SUMS"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:dranet:make-release:v1"
"""What docs/contributing/release.md explains: the parameters below, `make release`, and nothing else."""
LOCKS = (debian.LOCK, wheels.LIBRARIES, wheels.TOOLS)


def notes(facts: Facts, changelog: str) -> str:
    """The version's section of the changelog, which must have its date."""
    found = re.search(
        rf"^## {re.escape(facts.version)} \((.+?)\)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if not found:
        raise SystemExit(f"CHANGELOG.md has no section '## {facts.version} (YYYY-MM-DD)'")
    date, text = found.groups()
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise SystemExit(f"CHANGELOG.md says {facts.version} ({date}): a release has a date")
    return f"# {NAME} {facts.version}\n\n{date}\n\n{text.strip()}\n"


def sums(dist: Path) -> str:
    """As sha256sum writes and checks them."""
    files = sorted(path for path in dist.rglob("*") if path.is_file() and path != dist / SUMS)
    return "".join(f"{_sha256(path)}  {path.relative_to(dist)}\n" for path in files)


def provenance(facts: Facts, dist: Path, artifacts: Mapping[str, str]) -> dict[str, Any]:
    """An in-toto statement with a SLSA provenance. It is not signed: who publishes it signs it."""
    files = {path.name: _sha256(path) for path in sorted(dist.iterdir()) if path.is_file() and _is_subject(path)}
    named = {name: digest.removeprefix("sha256:") for name, digest in artifacts.items()}
    tree = {"uri": f"git+{facts.source}" if facts.source else "git", "digest": {"gitCommit": facts.commit}}
    locks = [{"uri": str(path.relative_to(PROJECT)), "digest": {"sha256": _sha256(path)}} for path in LOCKS]
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in {**files, **named}.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": facts.document(),
                "resolvedDependencies": [tree, *locks],
            },
            "runDetails": {"builder": {"id": facts.source or "urn:dranet:a-checkout"}},
        },
    }


def _is_subject(path: Path) -> bool:
    return path.name not in {SUMS, PROVENANCE}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
