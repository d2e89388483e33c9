"""One file a group of rules. Importing this package registers the rules of all its files."""

import importlib
import pkgutil

from dranet.advise.lint.rules.base import ERROR, INFO, RULES, SEVERITIES, WARNING, Context, Finding, Rule

__all__ = ["ERROR", "INFO", "RULES", "SEVERITIES", "WARNING", "Context", "Finding", "Rule"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
