"""Files: are they YAML, and do they hold Kubernetes objects?"""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.ignoring import ignored_by_file
from dranet.lint.rules.base import ERROR, RULES, WARNING, Context, Finding, rule
from dranet.model.near_names import nearest


@rule(
    "yaml-syntax",
    ERROR,
    "The file is not YAML or JSON",
    why="Nothing in the document can be read past this place.",
    bad="apiVersion: v1\nkind: Pod\nmetadata: {name: a\n",
    good="apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
)
def yaml_syntax(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if p.fatal:
            yield Finding("yaml-syntax", ERROR, p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "not-an-object",
    WARNING,
    "A document without apiVersion and kind",
    why="kubectl refuses such a document; the tools here skip it.",
    bad="spec:\n  containers: []\n",
    good="apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers: []\n",
)
def not_an_object(context: Context) -> Iterator[Finding]:
    for p in context.problems:
        if not p.fatal:
            yield Finding("not-an-object", WARNING, p.file, p.mark.line, p.mark.column, p.message, p.fix)


@rule(
    "unknown-ignore",
    WARNING,
    "An ignore comment for a rule that does not exist",
    why="It silences nothing, and whoever wrote it thinks it does.",
    bad="# dranet: ignore[no-alignment]\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
    good="# dranet: ignore[no-alignment-constraint]\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
)
def unknown_ignore(context: Context) -> Iterator[Finding]:
    for file, found in ignored_by_file(context.world.objects).items():
        for one in found:
            for name in sorted(one.rules - set(RULES)):
                near = nearest(name, RULES)
                fix = f"did you mean {near}?" if near else "docs/lint-rules.md lists the rules"
                message = f"there is no rule {name!r}: nothing is ignored here"
                yield Finding("unknown-ignore", WARNING, file, one.line, one.column, message, fix)
