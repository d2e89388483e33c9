"""Files: are they YAML, and do they hold Kubernetes objects?"""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, rule


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
