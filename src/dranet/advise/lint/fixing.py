"""`dranet lint --fix`: corrects findings that have one obvious correction, in the text of the file.

One finding of a document is corrected at a time, and the file is linted again: every correction moves the lines below
it, and may resolve other findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import accumulate

import msgspec
import yaml

from dranet.advise.lint.rules import Finding
from dranet.advise.manifests import FieldPath
from dranet.advise.manifests.yaml_edit import append, path_at, put, remove, rename, split_documents
from dranet.core.untyped import as_list, get_path

Lint = Callable[[str], Sequence[Finding]]
_MAX_FIXES = 200
_SURE = 0.75
"""A name that is less similar may be meant differently."""


class Fixed(msgspec.Struct, frozen=True):
    """The text of one file, and what was corrected in it."""

    text: str
    findings: tuple[Finding, ...] = ()


def fix_text(text: str, lint: Lint) -> Fixed:
    """Correct what can be corrected. ``lint`` returns the findings of a text of this file."""
    done: list[Finding] = []
    while len(done) < _MAX_FIXES:
        found = next(((new, one) for one in lint(text) if (new := _fixed(text, one)) is not None), None)
        if found is None:
            break
        text = found[0]
        done.append(found[1])
    return Fixed(text, tuple(done))


def _fixed(text: str, finding: Finding) -> str | None:
    """The text without this finding; None if it has no obvious correction."""
    fix = _FIXES.get(finding.rule)
    if fix is None:
        return None
    documents = split_documents(text)
    starts = [0, *accumulate(part.count("\n") for part in documents)]
    at = max(i for i, start in enumerate(starts[:-1]) if start < finding.line)
    path = path_at(documents[at], finding.line - starts[at], finding.column)
    made = fix(documents[at], path, finding) if path else None
    return None if made is None or made == documents[at] else "".join([*documents[:at], made, *documents[at + 1 :]])


def _rename_field(text: str, path: FieldPath, finding: Finding) -> str | None:
    meant = re.fullmatch(r"did you mean (\S+)\?", finding.fix)
    if meant is None or SequenceMatcher(None, str(path[-1]).lower(), meant[1].lower()).ratio() < _SURE:
        return None
    taken = get_path(yaml.safe_load(text), *path[:-1], meant[1]) is not None
    return None if taken else rename(text, path, meant[1])


def _move_field(text: str, path: FieldPath, finding: Finding) -> str | None:
    right = re.search(r"belongs under \S+ \(([\w.]+)\)$", finding.message)
    data = yaml.safe_load(text)
    if right is None or get_path(data, *right[1].split(".")) is not None:
        return None
    return remove(put(text, tuple(right[1].split(".")), get_path(data, *path)), path)


def _serve_v1(text: str, path: FieldPath, finding: Finding) -> str | None:
    """Only where no field has another place in v1."""
    wanted = "write apiVersion: resource.k8s.io/v1"
    return put(text, path, "resource.k8s.io/v1") if finding.fix == wanted else None


def _name_claim(text: str, path: FieldPath, _finding: Finding) -> str | None:
    """With several containers the one that uses the devices is not known."""
    data = yaml.safe_load(text)
    spec = path[:-2]
    if len(as_list(get_path(data, *spec, "containers"))) != 1:
        return None
    return append(text, (*spec, "containers", 0, "resources", "claims"), {"name": get_path(data, *path, "name")})


def _allow_lock(text: str, path: FieldPath, _finding: Finding) -> str | None:
    return append(text, (*path, "securityContext", "capabilities", "add"), "IPC_LOCK")


_FIXES: dict[str, Callable[[str, FieldPath, Finding], str | None]] = {
    "unknown-field": _rename_field,
    "misplaced-field": _move_field,
    "api-version": _serve_v1,
    "claim-not-named": _name_claim,
    "missing-ipc-lock": _allow_lock,
}
"""By rule. Other findings need a decision."""
FIXABLE = tuple(_FIXES)
