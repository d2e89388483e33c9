"""docs/lint-rules.md, written from the rules themselves by `make docs`; `make check` sees when it is old."""

from __future__ import annotations

from dranet.lint.rules import RULES, Rule

_HEAD = """\
# Lint rules

Generated from the rules themselves. `dranet lint -f FILE` runs all of them; rules about machines need `--shape` or
`--slices`. An error makes the command exit 1.

| rule | severity | what it finds |
|---|---|---|
"""


def lint_rules_page() -> str:
    """The whole page."""
    rows = "".join(f"| [{r.id}](#{r.id}) | {r.severity} | {r.title} |\n" for r in RULES.values())
    return _HEAD + rows + "".join(_section(rule) for rule in RULES.values())


def _section(rule: Rule) -> str:
    machine = f"\nOn the machine `{rule.shape}`.\n" if rule.shape else ""
    return (
        f"\n## {rule.id}\n\n**{rule.severity}** {rule.title}.\n\n{rule.why}\n{machine}"
        f"\nBad:\n\n```yaml\n{rule.bad}```\n\nGood:\n\n```yaml\n{rule.good}```\n"
    )
