"""Tokens to syntax tree: one method a grammar rule, building nodes as it goes.

A rule that fails reports, skips ahead and still returns a node made of what it had, so that later errors, misused
macros and reserved names are reported too. Which token a decision looks at, and how far, follows the ANTLR grammar
of cel-go; `recovery` explains why that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dranet.cel.errors import CelSyntaxError, Issue, Source
from dranet.cel.syntax.ast import Call, ErrorNode, Literal, Node, Select
from dranet.cel.syntax.primaries import Primaries
from dranet.cel.syntax.recovery import EXPR, FIELD, POSITIONS, PRIMARY, RELATIONS, ParseAborted, Recognition
from dranet.cel.syntax.tokens import EOF, ESC_IDENT, FLOAT, IDENT, INT, Token

MAX_DEPTH = 250
_CALC_LEVEL = {"'*'": 2, "'/'": 2, "'%'": 2, "'+'": 1, "'-'": 1}
_OPERATORS = {
    "<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in",
    "*": "_*_", "/": "_/_", "%": "_%_", "+": "_+_", "-": "_-_",
}  # fmt: skip


class MacroError(Exception):
    """A macro was called with arguments it cannot expand."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message


Macro = Callable[[int, "Node | None", list[Node]], "Node | None"]
MacroKey = tuple[str, int, bool]


def parse(source: Source, macros: Mapping[MacroKey, Macro], *, optional_syntax: bool = True) -> Node:
    """The syntax tree of an expression with its macros expanded; raises CelSyntaxError with all problems found."""
    parser = _Parser(source, macros, optional_syntax)
    node = parser.start()
    if parser.issues:
        raise CelSyntaxError(parser.issues, source)
    return node


class _Parser(Primaries):
    def __init__(self, source: Source, macros: Mapping[MacroKey, Macro], optional_syntax: bool) -> None:
        self.source = source
        self.issues: list[Issue] = []
        self._macros = macros
        self.optional_syntax = optional_syntax
        self._depth = {"expr": 0, "relation": 0, "calc": 0}
        super().__init__(source.text, self._syntax_error)

    def _syntax_error(self, offset: int, message: str) -> None:
        self.problem(offset, f"Syntax error: {message}")

    def problem(self, offset: int, message: str) -> ErrorNode:
        line, column = self.source.location(offset)
        self.issues.append(Issue(line, column, message))
        return ErrorNode(offset)

    def _enter(self, rule: str) -> None:
        self._depth[rule] += 1
        if self._depth[rule] > MAX_DEPTH:
            raise ParseAborted(f"expression recursion limit exceeded: {MAX_DEPTH}")

    def start(self) -> Node:
        node: Node = ErrorNode(0)
        try:
            self.returns.append(POSITIONS["start.eof"])
            node = self.expr()
            self.returns.pop()
            self.match("start.eof", "start.end", EOF)
        except Recognition as problem:
            self.recover(problem)
        except ParseAborted as aborted:
            if str(aborted):
                self.issues.append(Issue(-1, -1, str(aborted)))
        except RecursionError:
            self.issues.append(Issue(-1, -1, f"expression recursion limit exceeded: {MAX_DEPTH}"))
        return node

    def expr(self) -> Node:
        self._enter("expr")
        operator: Token | None = None
        node: Node = ErrorNode(-1)
        truthy: Node = ErrorNode(-1)
        falsy: Node = ErrorNode(-1)
        try:
            node = self._call("expr.ternary", self._or)
            self.sync("expr.ternary")
            if self.peek().kind == "'?'":
                operator = self.match("expr.ternary", "expr.begin", "'?'")
                truthy = self._call("expr.colon", self._or)
                self.match("expr.colon", "expr.begin", "':'")
                falsy = self._call("optional.end", self.expr)
        except Recognition as problem:
            self.recover(problem)
        self._depth["expr"] -= 1
        if operator is None:
            return node
        return Call(operator.offset, "_?_:_", [node, truthy, falsy])

    def _or(self) -> Node:
        return self._logical("or.loop", "'||'", "_||_", self._and)

    def _and(self) -> Node:
        return self._logical("and.loop", "'&&'", "_&&_", self._relation)

    def _logical(self, label: str, kind: str, function: str, operand: Callable[[], Node]) -> Node:
        start = self.peek().offset
        terms: list[Node] = []
        operators: list[int] = []
        try:
            terms.append(self._call(label, operand))
            self.sync(label)
            while self.peek().kind == kind:
                operators.append(self.consume_matched(label).offset)
                terms.append(self._call(label, operand))
                self.sync(label, loop=True)
        except Recognition as problem:
            self.recover(problem)
        if len(terms) <= len(operators):
            return self.problem(start, f"unexpected character, wanted {kind}")
        return _balanced(function, terms, operators, 0, len(operators) - 1) if operators else terms[0]

    def _relation(self, level: int = 0) -> Node:
        self._enter("relation")
        node: Node = ErrorNode(-1)
        try:
            node = self._call("relation.loop", self._calc)
            self.sync("relation.loop")
            while level <= 1 and self.peek().kind in RELATIONS:
                operator = self.consume_matched("relation.loop")
                right = self._call("relation.loop", lambda: self._relation(2))
                node = Call(operator.offset, _OPERATORS[operator.text], [node, right])
                self.sync("relation.loop", loop=True)
        except Recognition as problem:
            self.recover(problem)
        self._depth["relation"] -= 1
        return node

    def _calc(self, level: int = 0) -> Node:
        self._enter("calc")
        node: Node = ErrorNode(-1)
        try:
            node = self._call("calc.loop", self._unary)
            self.sync("calc.loop")
            while _CALC_LEVEL.get(self.peek().kind, -1) >= max(level, 1):
                operator = self.consume_matched("calc.loop")
                deeper = _CALC_LEVEL[operator.kind] + 1
                right = self._call("calc.loop", lambda deeper=deeper: self._calc(deeper))  # type: ignore[misc]
                node = Call(operator.offset, _OPERATORS[operator.text], [node, right])
                self.sync("calc.loop", loop=True)
        except Recognition as problem:
            self.recover(problem)
        self._depth["calc"] -= 1
        return node

    def _unary(self) -> Node:
        start = self.peek().offset
        operators: list[Token] = []
        node: Node = Literal(start, "<<error>>")
        try:
            self.sync("unary.begin")
            kind = self.peek().kind
            if kind == "'!'":
                while self.peek().kind == "'!'":
                    operators.append(self.consume_matched("unary.not"))
                    self.sync("unary.not", loop=True)
            elif kind == "'-'" and self.peek(2).kind not in (INT, FLOAT):
                self._minuses(operators)
            elif kind not in PRIMARY:
                self.no_viable(self.peek(), self.peek())
            node = self._call("unary.end", self._member)
        except Recognition as problem:
            self.recover(problem)
        if len(operators) % 2 == 0:
            return node
        return Call(operators[0].offset, "!_" if operators[0].text == "!" else "-_", [node])

    def _minuses(self, operators: list[Token]) -> None:
        while self.peek().kind == "'-'":
            if self.peek(2).kind not in PRIMARY:
                self.no_viable(self.peek(), self.peek(2))
            operators.append(self.consume_matched("unary.minus"))

    def _member(self) -> Node:
        node: Node = ErrorNode(-1)
        try:
            node = self._call("member.loop", self._primary)
            self.sync("member.loop")
            while self.peek().kind in ("'.'", "'['"):
                node = self._suffix(node)
                self.sync("member.loop", loop=True)
        except _Partial as partial:
            node = partial.node
            self.recover(partial.problem)
        except Recognition as problem:
            self.recover(problem)
        return node

    def _suffix(self, target: Node) -> Node:
        self.sync("member.select")
        if self.peek().kind == "'['":
            return self._index(target)
        following = self.peek(2)
        if following.kind == IDENT and self.peek(3).kind == "'('":
            return self._method(target)
        if following.kind not in FIELD and following.kind != "'?'":
            self.no_viable(self.peek(), following)
        return self._selection(target)

    def _selection(self, target: Node) -> Node:
        dot = self.match("member.dot", "member.optional", "'.'")
        optional, name, where = False, None, -1
        problem: Recognition | None = None
        try:
            self.sync("member.optional")
            if self.peek().kind == "'?'":
                optional = self.match("member.optional", "member.field", "'?'") is not None
            where = self.peek().offset
            name = self._call("member.loop", self._escaped_ident)
        except Recognition as raised:
            problem = raised
        node = self._select_node(target, dot, name, where, optional)
        if problem is not None:
            raise _Partial(node, problem)
        return node

    def _select_node(self, target: Node, dot: Token | None, name: Token | None, where: int, optional: bool) -> Node:
        if dot is None or name is None:
            return ErrorNode(-1) if dot is None else self.problem(where, "unsupported ident kind")
        if name.kind == ESC_IDENT:
            return self.problem(where, "unsupported syntax: '`'")
        if not optional:
            return Select(dot.offset, target, name.text)
        if not self.optional_syntax:
            return self.problem(dot.offset, "unsupported syntax '.?'")
        return Call(dot.offset, "_?._", [target, Literal(where, name.text)])

    def _method(self, target: Node) -> Node:
        self.match("member.dot", "member.ident", "'.'")
        name = self.match("member.ident", "member.open", IDENT)
        opened = self.match("member.open", "member.args", "'('")
        assert name is not None and opened is not None
        args: list[Node] = []
        problem: Recognition | None = None
        try:
            self.sync("member.args")
            if self.peek().kind in EXPR:
                self._call("member.close", lambda: self._expr_list(args))
            self.match("member.close", "member.loop", "')'")
        except Recognition as raised:
            problem = raised
        node = self.expand(opened.offset, name.text, target, args)
        if problem is not None:
            raise _Partial(node, problem)
        return node

    def _index(self, target: Node) -> Node:
        bracket = self.match("member.bracket", "member.index", "'['")
        assert bracket is not None
        optional = False
        index: Node = ErrorNode(-1)
        problem: Recognition | None = None
        try:
            self.sync("member.index")
            if self.peek().kind == "'?'":
                optional = self.match("member.index", "expr.begin", "'?'") is not None
            index = self._call("member.end", self.expr)
            self.match("member.end", "member.loop", "']'")
        except Recognition as raised:
            problem = raised
        node: Node = Call(bracket.offset, "_[?_]" if optional else "_[_]", [target, index])
        if optional and not self.optional_syntax:
            node = self.problem(bracket.offset, "unsupported syntax '[?'")
        if problem is not None:
            raise _Partial(node, problem)
        return node

    def expand(self, offset: int, function: str, target: Node | None, args: list[Node]) -> Node:
        macro = self._macros.get((function, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro(offset, target, args)
            except MacroError as error:
                return self.problem(error.offset, error.message)
            if expanded is not None:
                return expanded
        return Call(offset, function, args, target)


class _Partial(Exception):
    """A member suffix that failed half-way: the node made of what was there, and why."""

    def __init__(self, node: Node, problem: Recognition) -> None:
        self.node = node
        self.problem = problem


def _balanced(function: str, terms: list[Node], operators: list[int], low: int, high: int) -> Node:
    """Long chains of && and || become balanced trees, so depth stays logarithmic."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, operators, middle + 1, high)
    return Call(operators[middle], function, [left, right])
