"""Read manifest files into objects that know the position of every field.

Requests without an object around them, as documentation often shows them, are read as the requests of a
ResourceClaimTemplate named after the file, with a warning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import yaml

from dranet.advise.manifests.fast_reading import inherited, read_json, read_plain_yaml
from dranet.advise.manifests.objects import Located, Object, ReadProblem, SourceText
from dranet.advise.manifests.sources import page_line, unrendered, without_kustomizations
from dranet.advise.manifests.yaml_nodes import (
    MAX_ALIASED,
    MAX_DEPTH,
    FieldPath,
    Loader,
    Mark,
    aliased_size,
    child_of,
    construct,
    is_null,
    mapping_around,
    mark_of,
    too_deep,
)
from dranet.core.errors import InvalidInput, NotFound, Problem

_SUFFIXES = (".yaml", ".yml", ".json")
_REQUEST_FIELDS = ("exactly", "firstAvailable", "deviceClassName")


class Fetched(msgspec.Struct, frozen=True):
    """The text of what is not a file here: a URL, or the output of a program."""

    name: str
    text: str


ManifestFile = str | Path | Fetched


def read_files(files: Iterable[ManifestFile]) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of all files in order, and everything that is not an object."""
    objects: list[Object] = []
    problems: list[ReadProblem] = []
    for one in read_texts(files):
        found, wrong = read_text(one.text, one.name)
        objects += found
        problems += wrong if found or wrong else [_empty_file(one.name)]
    return objects, problems


def read_texts(files: Iterable[ManifestFile]) -> Iterator[Fetched]:
    """The texts of all files in order. ``-`` is standard input; a folder stands for the manifests in it."""
    for given in files:
        if isinstance(given, Fetched):
            yield given
            continue
        for file in _manifests_in(str(given)):
            yield Fetched("<stdin>" if file == "-" else file, _content(file))


def read_usable(files: Iterable[ManifestFile]) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of all files, and warnings; raises if a file has a problem that an API server would refuse."""
    objects, problems = read_files(files)
    fatal = [Problem("", str(one)) for one in problems if one.fatal or (one.unrendered and not objects)]
    if fatal:
        raise InvalidInput(fatal)
    return objects, problems


def must_read(files: Iterable[ManifestFile]) -> list[Object]:
    """Objects of all files; raises if a file has a problem that an API server would refuse."""
    return read_usable(files)[0]


def read_text(text: str, file: str) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of one text: several documents, a List, or one object. Templates have to be rendered first."""
    if template := unrendered(text, file):
        return [], [template]
    objects, problems = _read(text, file)
    kept, kustomizations = without_kustomizations(objects)
    return kept, [*problems, *kustomizations]


def _read(text: str, file: str) -> tuple[list[Object], list[ReadProblem]]:
    if text.lstrip()[:1] in {"{", "["}:
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
        objects = read_json(text, file)
        if objects is not None:
            return objects, []
    plain = read_plain_yaml(text, file)
    if plain is not None:
        return plain, []
    return _Collector(text, file).read()


def find_manifests(files: Iterable[str]) -> tuple[str, ...]:
    """The files, with each folder replaced by the manifests in it and in all folders below it, sorted."""
    found: list[str] = []
    for file in files:
        folder = Path(file)
        if file == "-" or not folder.is_dir():
            found.append(file)
            continue
        below = sorted(str(path) for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
        if not below:
            raise InvalidInput(f"{file}: no {', '.join(_SUFFIXES)} file in this folder or below it")
        found += below
    return tuple(found)


def _manifests_in(file: str) -> list[str]:
    """A folder stands for the manifests directly in it, sorted, as with ``kubectl -f``."""
    folder = Path(file)
    if file == "-" or not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if not found:
        raise InvalidInput(f"{file}: no {', '.join(_SUFFIXES)} file in this folder")
    return found


def _content(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{file}:{line}: not valid UTF-8 at byte {error.start}: save the file as UTF-8") from error
    except OSError as error:
        raise InvalidInput(f"{file}: cannot read the file: {error.strerror}") from error


class _Collector:
    """Objects and problems of one YAML text."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._source = SourceText(text)
        self._objects: list[Object] = []
        self._problems: list[ReadProblem] = []
        self._aliased = 0
        self._braces = "{{" in text

    def read(self) -> tuple[list[Object], list[ReadProblem]]:
        # Check limits first: a few bytes of YAML can expand to more memory than the machine has.
        deep = too_deep(self._text)
        if deep is not None:
            message = f"nested more than {MAX_DEPTH} levels deep; Kubernetes objects have fewer levels"
            return [], [ReadProblem(self._file, deep, message)]
        try:
            for node in yaml.compose_all(self._text, Loader=Loader):
                if node is not None and not self._within_alias_limit(node):
                    break
                if node is not None:
                    self._collect(node, {}, 0)
        except yaml.YAMLError as error:
            self._problems.append(self._page_problem() or _yaml_problem(error, self._file, self._source))
        return self._objects, self._problems

    def _page_problem(self) -> ReadProblem | None:
        line = page_line(self._text)
        message, fix = "part of a page around the manifest, not YAML", "keep only the lines of the manifest"
        return None if line is None else ReadProblem(self._file, Mark(line, 1), message, True, fix)

    def _within_alias_limit(self, node: yaml.Node) -> bool:
        self._aliased += aliased_size(node)
        if self._aliased > MAX_ALIASED:
            message = f"aliases and merge keys add more than {MAX_ALIASED:,} values to this file; write them out"
            self._problem(node, message)
        return self._aliased <= MAX_ALIASED

    def _collect(self, node: yaml.Node, defaults: dict[str, str], depth: int) -> None:
        if is_null(node):
            return
        if _are_requests(node):
            name = Path(self._file).stem if self._file != "<stdin>" else "requests"
            self._problems.append(_lone_requests(node, self._file, name))
            node = _template_around(node, name)
        if _is_json_patch(node):
            message, fix = (
                "a JSON patch, not a manifest",
                f"kubectl kustomize {Path(self._file).parent} | dranet lint -f -",
            )
            self._problems.append(ReadProblem(self._file, mark_of(node), message, True, fix, unrendered=True))
            return
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, "expected a Kubernetes object: a mapping with apiVersion and kind")
            return
        items, kind = child_of(node, "items"), _value(node, "kind")
        is_list = items is not None and isinstance(items[1], yaml.SequenceNode) and kind.endswith("List")
        if items is not None and is_list and depth < MAX_DEPTH:
            for item in items[1].value:
                self._collect(item, inherited(kind, _value(node, "apiVersion") or None), depth + 1)
        else:
            self._object(node, defaults)

    def _object(self, node: yaml.Node, defaults: dict[str, str]) -> None:
        if self._braces and (unrendered := _unrendered(node)):
            fix = "use the output of helm template"
            message = "a Helm template that was not rendered"
            self._problems.append(ReadProblem(self._file, mark_of(unrendered), message, fix=fix))
            return
        duplicates: list[tuple[FieldPath, Mark]] = []
        data = {**defaults, **construct(node, (), duplicates)}
        missing = " and ".join(key for key in ("apiVersion", "kind") if not data.get(key))
        if missing:
            message = f"no {missing}: not a Kubernetes object"
            fix = "add apiVersion and kind, or remove the document"
            self._problems.append(ReadProblem(self._file, mark_of(node), message, False, fix))
        else:
            located = Located(node)
            self._objects.append(Object(data, self._file, lambda: located, self._source, tuple(duplicates)))

    def _problem(self, node: yaml.Node, message: str) -> None:
        self._problems.append(ReadProblem(self._file, mark_of(node), message))


def _unrendered(node: yaml.Node) -> yaml.Node | None:
    """The first ``{{ ... }}``, which YAML takes for a mapping whose key is a mapping."""
    waiting, seen = [node], set[int]()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen or isinstance(one, yaml.ScalarNode):
            continue
        seen.add(id(one))
        if isinstance(one, yaml.MappingNode):
            found = next((key for key, _ in one.value if isinstance(key, yaml.MappingNode)), None)
            if found is not None:
                return found
            waiting += [value for _, value in one.value]
        else:
            waiting += one.value
    return None


def _value(node: yaml.Node, key: str) -> str:
    """A text field of an object; an object without a kind counts as a List."""
    found = child_of(node, key)
    if found is None:
        return "List" if key == "kind" else ""
    return str(found[1].value)


def _is_json_patch(node: yaml.Node) -> bool:
    """Whether this is a list of operations that kustomize applies to an object."""
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    return bool(items) and all(child_of(item, "op") and child_of(item, "path") for item in items)


def _are_requests(node: yaml.Node) -> bool:
    """Whether this is a list of requests without an object around it."""
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return False
    return all(child_of(item, "name") and any(child_of(item, key) for key in _REQUEST_FIELDS) for item in node.value)


def _template_around(requests: yaml.Node, name: str) -> yaml.Node:
    flat = all(child_of(item, "deviceClassName") for item in requests.value)
    spec = mapping_around({"devices": mapping_around({"requests": requests}, requests)}, requests)
    entries: dict[str, yaml.Node | str] = {
        "apiVersion": f"resource.k8s.io/{'v1beta1' if flat else 'v1'}",
        "kind": "ResourceClaimTemplate",
        "metadata": mapping_around({"name": name}, requests),
        "spec": mapping_around({"spec": spec}, requests),
    }
    return mapping_around(entries, requests)


def _lone_requests(node: yaml.Node, file: str, name: str) -> ReadProblem:
    message = f"requests without an object around them: read as requests of ResourceClaimTemplate {name!r}"
    fix = "put them below spec.spec.devices.requests of a ResourceClaimTemplate"
    return ReadProblem(file, mark_of(node), message, False, fix)


def _empty_file(file: str) -> ReadProblem:
    return ReadProblem(
        file, Mark(1, 1), "no Kubernetes object in this file", False, "check that this is the right file"
    )


def _yaml_problem(error: yaml.YAMLError, file: str, source: SourceText) -> ReadProblem:
    mark = getattr(error, "problem_mark", None)
    place = Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
    near = source.lines[max(place.line - 2, 0) : place.line]  # some accidents are noticed one line later
    accident = next(((text, fix) for pattern, text, fix in _ACCIDENTS if any(map(pattern.search, near))), None)
    if accident:
        return ReadProblem(file, place, f"not valid YAML: {accident[0]}", fix=accident[1])
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    text = ", ".join(part for part in parts if part) or str(error).replace("\n", " ")
    return ReadProblem(file, place, f"not valid YAML: {text}")


_ACCIDENTS = (
    (re.compile(r"^ *\t"), "the line is indented with a tab", "indent with spaces"),
    (re.compile(r"\{\{"), "the line is a Helm template that was not rendered", "use the output of helm template"),
    (re.compile(r"^[^#'\"{\[]*: [^#'\"{\[]*\w: "), "the line has two keys", "quote the value, or start a new line"),
    (re.compile(r"[\u2018\u2019\u201c\u201d]"), "the line has typographic quotes", "use straight quotes"),
    (re.compile(r"^(<<<<<<<|=======|>>>>>>>)"), "the line is a conflict marker of git", "resolve the conflict"),
)
"""Common causes of lines that are not valid YAML: the parser only sees that a token is missing."""
