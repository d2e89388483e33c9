"""One file a group of rules; importing this package registers those of every file in it. A new file needs no list."""

import importlib
import pkgutil

from dranet.lint.rules.base import RULES, Context, Finding, Rule

__all__ = ["RULES", "Context", "Finding", "Rule"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
