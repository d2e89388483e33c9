"""Syntax tree to types: every node one, every call its overloads."""
