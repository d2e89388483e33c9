"""Tokens to syntax tree: one method a grammar rule, building nodes as it goes.

A rule that fails reports, skips ahead and still returns a node made of what it had, so that later errors, misused
macros and reserved names are reported too. Which token a decision looks at, and how far, follows the ANTLR grammar
of cel-go; `recovery` explains why that matters.

One long file on purpose: a grammar is read from its first rule to its last, and half of it in another file would need
stubs of the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dranet.cel.errors import CelSyntaxError, Issue, Source
from dranet.cel.syntax.ast import Call, Entry, ErrorNode, Ident, ListNode, Literal, MapNode, Node, Select, StructNode
from dranet.cel.syntax.literals import LiteralError, bytes_value, float_value, int_value, string_value, uint_value
from dranet.cel.syntax.recovery import EXPR, FIELD, POSITIONS, PRIMARY, RELATIONS, ParseAborted, Recognition, Recognizer
from dranet.cel.syntax.tokens import BYTES, EOF, ESC_IDENT, FLOAT, IDENT, INT, STRING, UINT, Token

MAX_DEPTH = 250
_CALC_LEVEL = {"'*'": 2, "'/'": 2, "'%'": 2, "'+'": 1, "'-'": 1}
_OPERATORS = {
    "<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in",
    "*": "_*_", "/": "_/_", "%": "_%_", "+": "_+_", "-": "_-_",
}  # fmt: skip

_RESERVED = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    }
)  # fmt: skip
_CONSTANTS = {"'true'": True, "'false'": False, "'null'": None}
_NUMBERS: dict[str, Callable[[str], Any]] = {INT: int_value, UINT: uint_value, FLOAT: float_value}


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


class _Parser(Recognizer):
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

    def _call(self, follow: str, rule: Callable[[], Any]) -> Any:
        self.returns.append(POSITIONS[follow])
        try:
            return rule()
        finally:
            self.returns.pop()

    def consume_matched(self, label: str) -> Token:
        """Take the next token, whatever it is, as the one the rule stands at."""
        token = self.match(label, label, self.peek().kind)
        assert token is not None
        return token

    def _primary(self) -> Node:
        builder: list[Callable[[], Node]] = [lambda: ErrorNode(-1)]
        try:
            self.sync("primary.begin")
            kind = self.peek().kind
            if kind in (IDENT, "'.'"):
                self._named(builder)
            elif kind == "'('":
                self._nested(builder)
            elif kind == "'['":
                self._list(builder)
            elif kind == "'{'":
                self._map(builder)
            elif kind in PRIMARY:
                node = self._call("primary.end", self._literal)
                builder.append(lambda: node)
            else:
                self.no_viable(self.peek(), self.peek())
        except Recognition as problem:
            node = builder[-1]()
            self.recover(problem)
            return node
        return builder[-1]()

    def _nested(self, builder: list[Callable[[], Node]]) -> None:
        self.match("primary.open", "expr.begin", "'('")
        node = self._call("primary.close", self.expr)
        builder.append(lambda: node)
        self.match("primary.close", "primary.end", "')'")

    def _named(self, builder: list[Callable[[], Node]]) -> None:
        """An identifier, a call of a global function or a message; the tokens after the names decide."""
        start = self.peek()
        ahead = 2 if start.kind == "'.'" else 1
        if self.peek(ahead).kind != IDENT:
            self.no_viable(start, self.peek(ahead))
        after = ahead + 1
        if self.peek(after).kind == "'('":
            self._global_call(builder, start)
            return
        while self.peek(after).kind == "'.'" and self.peek(after + 1).kind == IDENT:
            after += 2
        if self.peek(after).kind == "'{'":
            self._message(builder)
            return
        leading, name = self._leading_name()
        builder.append(lambda: self._ident_node(start.offset, leading, name))

    def _leading_name(self) -> tuple[str, Token]:
        leading = ""
        if self.peek().kind == "'.'":
            self.match("primary.dot", "primary.ident", "'.'")
            leading = "."
        name = self.match("primary.ident", "primary.end", IDENT)
        assert name is not None
        return leading, name

    def _ident_node(self, start: int, leading: str, name: Token) -> Node:
        if name.text in _RESERVED:
            return self.problem(start, f"reserved identifier: {name.text}")
        return Ident(name.offset, leading + name.text)

    def _global_call(self, builder: list[Callable[[], Node]], start: Token) -> None:
        leading, name = self._leading_name()
        opened = self.match("primary.open", "primary.args", "'('")
        assert opened is not None
        args: list[Node] = []

        def build() -> Node:
            if name.text in _RESERVED:
                return self.problem(start.offset, f"reserved identifier: {name.text}")
            return self.expand(opened.offset, leading + name.text, None, args)

        builder.append(build)
        self.sync("primary.args")
        if self.peek().kind in EXPR:
            self._call("primary.close", lambda: self._expr_list(args))
        self.match("primary.close", "primary.end", "')'")

    def _expr_list(self, args: list[Node]) -> None:
        try:
            args.append(self._call("args.comma", self.expr))
            self.sync("args.comma")
            while self.peek().kind == "','":
                self.match("args.comma", "expr.begin", "','")
                args.append(self._call("args.comma", self.expr))
                self.sync("args.comma", loop=True)
        except Recognition as problem:
            self.recover(problem)

    def _list(self, builder: list[Callable[[], Node]]) -> None:
        bracket = self.match("primary.open", "primary.list", "'['")
        assert bracket is not None
        items: list[tuple[bool, Node]] = []
        builder.append(lambda: self._list_node(bracket.offset, items))
        self.sync("primary.list")
        if self.peek().kind in EXPR or self.peek().kind == "'?'":
            self._call("primary.listcomma", lambda: self._list_items(items))
        self.sync("primary.listcomma")
        if self.peek().kind == "','":
            self.match("primary.listcomma", "primary.listend", "','")
        self.match("primary.listend", "primary.end", "']'")

    def _list_items(self, items: list[tuple[bool, Node]]) -> None:
        try:
            items.append(self._call("list.comma", self._optional_expr))
            self.sync("list.comma")
            while self._another(EXPR):
                self.match("list.comma", "list.item", "','")
                items.append(self._call("list.comma", self._optional_expr))
                self.sync("list.comma", loop=True)
        except Recognition as problem:
            self.recover(problem)

    def _another(self, first: frozenset[str]) -> bool:
        """A comma followed by an item, not a trailing one."""
        return self.peek().kind == "','" and (self.peek(2).kind in first or self.peek(2).kind == "'?'")

    def _list_node(self, offset: int, items: list[tuple[bool, Node]]) -> Node:
        optionals = frozenset(index for index, (optional, _) in enumerate(items) if optional)
        if optionals and not self.optional_syntax:
            return self.problem(items[min(optionals)][1].offset, "unsupported syntax '?'")
        return ListNode(offset, [node for _, node in items], optionals)

    def _optional_expr(self) -> tuple[bool, Node]:
        optional = False
        node: Node = ErrorNode(-1)
        try:
            self.sync("optional.begin")
            if self.peek().kind == "'?'":
                optional = self.match("optional.question", "expr.begin", "'?'") is not None
            node = self._call("optional.end", self.expr)
        except Recognition as problem:
            self.recover(problem)
        return optional, node

    def _map(self, builder: list[Callable[[], Node]]) -> None:
        brace = self.match("primary.brace", "primary.map", "'{'")
        assert brace is not None
        entries: list[Entry] = []
        builder.append(lambda: MapNode(brace.offset, entries))
        self.sync("primary.map")
        if self.peek().kind in EXPR or self.peek().kind == "'?'":
            self._call("primary.mapcomma", lambda: self._entries(entries, "entry.key", self._optional_expr, EXPR))
        self._map_end()

    def _map_end(self) -> None:
        self.sync("primary.mapcomma")
        if self.peek().kind == "','":
            self.match("primary.mapcomma", "primary.mapend", "','")
        self.match("primary.mapend", "primary.end", "'}'")

    def _entries(
        self, entries: list[Entry], label: str, key: Callable[[], tuple[bool, Any]], first: frozenset[str]
    ) -> None:
        try:
            self._entry(entries, key)
            self.sync("entry.comma")
            while self._another(first):
                self.match("entry.comma", label, "','")
                self._entry(entries, key)
                self.sync("entry.comma", loop=True)
        except Recognition as problem:
            entries.clear()
            self.recover(problem)

    def _entry(self, entries: list[Entry], key: Callable[[], tuple[bool, Any]]) -> None:
        optional, name = self._call("entry.colon", key)
        colon = self.match("entry.colon", "expr.begin", "':'")
        value = self._call("entry.comma", self.expr)
        if optional and not self.optional_syntax:
            self.problem(colon.offset if colon else -1, "unsupported syntax '?'")
        entries.append(Entry(colon.offset if colon else -1, name, value, optional))

    def _message(self, builder: list[Callable[[], Node]]) -> None:
        leading, name = self._leading_name()
        names = leading + name.text
        while self.peek().kind == "'.'":
            self.match("primary.namedot", "primary.ident", "'.'")
            part = self.match("primary.ident", "primary.names", IDENT)
            names += f".{part.text}" if part else ""
        brace = self.match("primary.brace", "primary.fields", "'{'")
        assert brace is not None
        entries: list[Entry] = []
        self.sync("primary.fields")
        first = self.peek().offset
        builder.append(lambda: self._message_node(brace.offset, names, entries, first))
        if self.peek().kind in FIELD or self.peek().kind == "'?'":
            self._call("primary.mapcomma", lambda: self._entries(entries, "entry.field", self._optional_field, FIELD))
        self._map_end()

    def _message_node(self, offset: int, name: str, entries: list[Entry], first: int) -> Node:
        for entry in entries:
            field: Token | None = entry.key
            if field is None or field.kind == ESC_IDENT:
                self.problem(first, "unsupported ident kind" if field is None else "unsupported syntax: '`'")
            entry.key = field.text if field is not None else ""
        return StructNode(offset, name, entries)

    def _optional_field(self) -> tuple[bool, Token | None]:
        optional, name = False, None
        try:
            self.sync("optional.field")
            if self.peek().kind == "'?'":
                optional = self.match("optional.question", "field.begin", "'?'") is not None
            name = self._call("optional.end", self._escaped_ident)
        except Recognition as problem:
            self.recover(problem)
        return optional, name

    def _literal(self) -> Node:
        start = self.peek()
        try:
            self.sync("literal.begin")
            negative = self.peek().kind == "'-'"
            if negative:
                if self.peek(2).kind not in (INT, FLOAT):
                    self.no_viable(self.peek(), self.peek(2))
                self.consume_matched("literal.begin")
            if self.peek().kind not in (*_NUMBERS, *_CONSTANTS, STRING, BYTES):
                self.no_viable(self.peek(), self.peek())
            return self._literal_node(start.offset, self.consume_matched("literal.begin"), negative)
        except Recognition as problem:
            self.recover(problem)
            return ErrorNode(-1)

    def _literal_node(self, offset: int, token: Token, negative: bool) -> Node:
        if token.kind in _CONSTANTS:
            return Literal(offset, _CONSTANTS[token.kind])
        try:
            if token.kind == STRING:
                return Literal(offset, string_value(token.text))
            if token.kind == BYTES:
                return Literal(offset, bytes_value(token.text))
            return Literal(offset, _NUMBERS[token.kind](("-" if negative else "") + token.text))
        except LiteralError as error:
            return self.problem(offset, str(error))

    def _escaped_ident(self) -> Token | None:
        try:
            self.sync("field.begin")
            return self.match("field.begin", "field.end", self.peek().kind if self.peek().kind in FIELD else IDENT)
        except Recognition as problem:
            self.recover(problem)
            return None


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
