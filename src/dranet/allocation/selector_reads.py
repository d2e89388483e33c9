"""Which values of a device a selector looks at: devices that agree in those get the same verdict.

Eight cards of a machine differ in their addresses, and hardly any selector asks for these. So most of them need not be
asked one by one.
"""

from __future__ import annotations

from dranet.cel.syntax.ast import Call, Comprehension, Ident, Literal, Node, Select

Read = tuple[str, ...]
"""``("driver",)``, or ``("attributes", domain, name)``."""
_DEVICE = "device"
_SINGLE = ("driver", "allowMultipleAllocations")
_MAPS = ("attributes", "capacity")
_INDEXING = ("_[_]", "_[?_]", "_?._")


def reads_of(root: Node) -> tuple[Read, ...] | None:
    """Every value below `device`; None where it looks at more than single values, such as all names of a domain."""
    found: dict[Read, None] = {}
    return tuple(found) if _collect(root, found) else None


def _collect(node: Node, found: dict[Read, None]) -> bool:
    path = _path(node)
    if path is not None and len(path) <= 3:
        found[path] = None
        return (len(path) == 1 and path[0] in _SINGLE) or (len(path) == 3 and path[0] in _MAPS)
    if isinstance(node, Comprehension) and _DEVICE in (node.var, node.var2):
        return False  # another device than ours
    return all(_collect(child, found) for child in node.children())


def _path(node: Node) -> Read | None:
    """The steps from `device` to here, where all of them are written down."""
    if isinstance(node, Ident):
        return () if node.name.removeprefix(".") == _DEVICE else None
    if isinstance(node, Select):
        before = _path(node.operand)
        return None if before is None else (*before, node.field)
    if isinstance(node, Call) and node.function in _INDEXING and node.target is None:
        before, key = _path(node.args[0]), node.args[1]
        if before is not None and isinstance(key, Literal) and isinstance(key.value, str):
            return (*before, key.value)
    return None
