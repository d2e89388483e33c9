"""The primary expressions of the grammar: names, calls, literals, lists, maps, messages.

Kept apart from `parser` only for size; `Primaries` is a part of the parser and leans on its rules for expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dranet.cel.syntax.ast import Entry, ErrorNode, Ident, ListNode, Literal, MapNode, Node, StructNode
from dranet.cel.syntax.literals import LiteralError, bytes_value, float_value, int_value, string_value, uint_value
from dranet.cel.syntax.recovery import EXPR, FIELD, POSITIONS, PRIMARY, Recognition, Recognizer
from dranet.cel.syntax.tokens import BYTES, ESC_IDENT, FLOAT, IDENT, INT, STRING, UINT, Token

_RESERVED = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    }
)  # fmt: skip
_CONSTANTS = {"'true'": True, "'false'": False, "'null'": None}
_NUMBERS: dict[str, Callable[[str], Any]] = {INT: int_value, UINT: uint_value, FLOAT: float_value}


class Primaries(Recognizer):
    """Rules below `member`."""

    optional_syntax: bool

    def expr(self) -> Node:
        raise NotImplementedError

    def problem(self, offset: int, message: str) -> ErrorNode:
        raise NotImplementedError

    def expand(self, offset: int, function: str, target: Node | None, args: list[Node]) -> Node:
        raise NotImplementedError

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
        """An identifier, a call of a global function or a message, told apart by what follows the names."""
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
