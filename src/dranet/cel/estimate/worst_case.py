"""The worst case an expression can cost, before any data is seen.

The API server refuses selectors whose estimate passes a limit. Sizes come from declarations (a device has at most 32
attributes, a driver name 63 characters); where nothing is known the size is unbounded and so, usually, is the cost.

The numbers are cel-go's, including where it is wrong: a selector is refused by its estimate, not by what is true. So
the order of visits, what is looked up by path and what by node, and sizes that are forgotten on the way all follow it.
`tests/data/cel-1.jsonl.gz` has the estimates of the real thing for every recorded expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dranet.cel import types as t
from dranet.cel.estimate.standard_costs import (
    MAX,
    ONE,
    UNKNOWN,
    ZERO,
    CallEstimate,
    Measured,
    Path,
    Range,
    fixed,
    known_size,
    standard_call,
)
from dranet.cel.run.cost import TRAVERSAL
from dranet.cel.syntax.ast import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructNode,
)

SizeOf = Callable[[Path], Range | None]
_SCALAR = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


class Entries(msgspec.Struct, frozen=True):
    """Sizes of the keys and values of a list or map."""

    kind: str
    key: Range
    value: Range

    def union(self, other: Entries | None) -> Entries | None:
        """What holds for either of the two; nothing is known where one of them is not."""
        return Entries(self.kind, self.key.union(other.key), self.value.union(other.value)) if other else None


class _Local(msgspec.Struct, frozen=True):
    path: Path
    size: Range | None
    entries: Entries | None


Extension = Callable[[str, str, "Measured | None", Sequence[Measured], SizeOf], CallEstimate | None]


def estimate(root: Node, size_of: SizeOf, extension: Extension) -> Range:
    """The range of costs of a checked expression; `extension` prices the functions of libraries."""
    return _Estimator(size_of, extension).cost(root)


class _Estimator:
    def __init__(self, size_of: SizeOf, extension: Extension) -> None:
        self._declared = size_of
        self._extension = extension
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Range] = {}
        self._entries: dict[Node, Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        """The cost range of this node and all below it; records sizes and paths."""
        if isinstance(node, Literal):
            return ZERO
        if isinstance(node, Ident):
            local = self._local(node.name)
            self._paths[node] = local.path if local else (node.name.removeprefix("."),)
            return ONE
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, StructNode):
            return self._total([entry.value for entry in node.entries]) + fixed(40)
        assert isinstance(node, Comprehension)
        return self._bind(node) if _is_bind(node) else self._comprehension(node)

    def _total(self, nodes: Sequence[Node]) -> Range:
        total = ZERO
        for node in nodes:
            total = total + self.cost(node)
        return total

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _select(self, node: Select) -> Range:
        if node.overloads:
            self._paths[node] = (node.overloads[-1],)
            return ONE
        total = self.cost(node.operand)
        if node.test:
            return total  # has(a.b) costs what a costs
        if _type(node.operand).kind in ("map", "struct", "param"):
            total = total + ONE
        self._paths[node] = (*self._path(node.operand), node.field)
        return total

    def _call(self, node: Call) -> Range:
        """Arguments, then the target, then the most expensive matching overload."""
        if node.function == "dyn":
            total = ONE + self.cost(node.args[0])
            self._copy_size(node, node.args[0])
            return total
        arg_costs: list[Range] = []
        args: list[Measured] = []
        for arg in node.args:
            arg_costs.append(self.cost(arg))
            args.append(self._measured(arg))
        if not node.overloads:
            return ZERO
        total, target = ZERO, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._measured(node.target)
        price, size = Range(MAX, 0), None  # an empty union: the first overload widens it to its own price
        for overload in node.overloads:
            found = self._overload(node, overload, target, args, arg_costs)
            price = price.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload in ("index_list", "index_map"):
                entries = self._entry_sizes(node.args[0])
                size = entries.value if entries else None
                step = "@items" if overload == "index_list" else "@values"
                self._paths[node] = (*self._path(node.args[0]), step)
            if size is None:
                size = self._size(node)
        if size is not None:
            self._sizes[node] = size
        return total + price

    def _overload(
        self, node: Call, overload: str, target: Measured | None, args: Sequence[Measured], costs: Sequence[Range]
    ) -> CallEstimate:
        spent = ZERO
        for cost in costs:
            spent = spent + cost
        found = self._extension(node.function, overload, target, args, self._declared)
        if found is not None:
            return CallEstimate(found.cost + spent, found.size)
        special = self._special(node, overload, args, costs, spent)
        if special is not None:
            return special
        standard = standard_call(overload, target, args)
        return CallEstimate(standard.cost + spent, standard.size)

    def _special(
        self, node: Call, overload: str, args: Sequence[Measured], costs: Sequence[Range], spent: Range
    ) -> CallEstimate | None:
        """Calls whose cost depends on more than sizes."""
        if overload in ("logical_or", "logical_and"):
            # The left side may decide alone: at least its cost, at most both.
            return CallEstimate(Range(costs[0].min, (costs[0] + costs[1]).max))
        if overload == "conditional":
            size = known_size(args[1]).union(known_size(args[2]))
            self._join_entries(node, node.args[1], node.args[2])
            return CallEstimate(costs[0] + costs[1].union(costs[2]), size)
        if overload in ("add_string", "add_bytes", "add_list"):
            size = known_size(args[0]) + known_size(args[1])
            self._join_entries(node, node.args[0], node.args[1])
            return CallEstimate((ONE if overload == "add_list" else size.scaled(TRAVERSAL)) + spent, size)
        return None

    def _join_entries(self, node: Node, first: Node, second: Node) -> None:
        one = self._entry_sizes(first)
        joined = one.union(self._entry_sizes(second)) if one else None
        if joined is not None:
            self._entries[node] = joined

    def _list(self, node: ListNode) -> Range:
        total, item = ZERO, Range(0 if not node.elements else MAX, 0)
        for element in node.elements:
            total = total + self.cost(element)
            item = item.union(self._size(element) or UNKNOWN)
        self._entries[node] = Entries("list", ONE, item)
        return total + fixed(10)

    def _map(self, node: MapNode) -> Range:
        start = 0 if not node.entries else MAX
        total, key, value = ZERO, Range(start, 0), Range(start, 0)
        for entry in node.entries:
            total = total + self.cost(entry.key) + self.cost(entry.value)
            key = key.union(self._size(entry.key) or UNKNOWN)
            value = value.union(self._size(entry.value) or UNKNOWN)
        self._entries[node] = Entries("map", key, value)
        return total + fixed(30)

    def _bind(self, node: Comprehension) -> Range:
        """cel.bind is a comprehension that never loops; priced as such it would cost as if it might."""
        total = self.cost(node.range) + self.cost(node.init)
        self._push(node.accu, _Local(self._path(node.init), self._size(node.init), self._entry_sizes(node.init)))
        total = total + self.cost(node.result)
        self._locals[node.accu].pop()
        self._copy_size(node, node.result)
        return total

    def _comprehension(self, node: Comprehension) -> Range:
        total = self.cost(node.range) + self.cost(node.init)
        self._push(node.accu, _Local(self._path(node.init), self._size(node.init), self._entry_sizes(node.init)))
        names = self._push_loop_variables(node)
        loop, step = self.cost(node.condition), self.cost(node.step)
        for name in names:
            self._locals[name].pop()
        total = total + self.cost(node.result)
        self._locals[node.accu].pop()
        # `exists` and `all` stop early, but in the worst case all iterations run.
        count = self._size(node.range) or UNKNOWN
        total = total + count * (step + loop)
        if isinstance(node.init, Literal):
            size = self._size(node.init)
            if size is not None:
                self._sizes[node] = size
        elif isinstance(node.init, (ListNode, MapNode)):
            # map and filter: the result is as long as the range at most. What its entries are like is taken from one
            # step, whose sum with the accumulator is never visited as a list of its own.
            self._sizes[node] = count
            entries = self._entry_sizes(node.step)
            if entries is not None:
                self._entries[node] = entries
        return total

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _push_loop_variables(self, node: Comprehension) -> list[str]:
        entries, path = self._entry_sizes(node.range), self._path(node.range)
        is_list = (entries.kind if entries else _type(node.range).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.var2:
            self._push(node.var, _Local((*path, "@indices" if is_list else "@keys"), key, None))
            self._push(node.var2, _Local((*path, "@items" if is_list else "@values"), value, None))
            return [node.var, node.var2]
        size, step = (value, "@items") if is_list else (key, "@keys")
        self._push(node.var, _Local((*path, step), size, None))
        return [node.var]

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local:
                return local.path
        return self._paths.get(node, ())

    def _measured(self, node: Node) -> Measured:
        path = self._path(node)
        if path and path[0] in (ACCUMULATOR, "__result__"):
            path = ()  # an accumulator is nothing that was declared, so no declared size may be found for it
        return Measured(node, path, _type(node), self._size(node))

    def _size(self, node: Node) -> Range | None:
        """How large the value can be: what was found on the way, then what is written there, then what is declared."""
        if node in self._sizes:
            return self._sizes[node]
        literal = _literal_size(node)
        if literal is not None:
            return literal
        declared = self._declared(self._path(node))
        if declared is not None:
            self._sizes[node] = declared
            return declared
        if _is_scalar(_type(node)):
            return ONE
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local else None

    def _entry_sizes(self, node: Node) -> Entries | None:
        if node in self._entries:
            return self._entries[node]
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local else None

    def _copy_size(self, node: Node, source: Node) -> None:
        size, entries = self._size(source), self._entry_sizes(source)
        if size is not None:
            self._sizes[node] = size
        if entries is not None:
            self._entries[node] = entries


def _type(node: Node) -> t.Type:
    assert node.type is not None
    return node.type


def _is_bind(node: Comprehension) -> bool:
    empty = isinstance(node.range, ListNode) and not node.range.elements
    never = isinstance(node.condition, Literal) and node.condition.value is False
    return empty and never and node.accu != "__result__"


def _literal_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return fixed(len(node.value)) if isinstance(node.value, (str, bytes)) else ONE
    if isinstance(node, ListNode):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapNode) else None


def _is_scalar(type_: t.Type) -> bool:
    if type_.kind in _SCALAR:
        return True
    inner, optional = t.unwrap_optional(type_)
    return optional and _is_scalar(inner)
