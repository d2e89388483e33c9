"""Text to syntax tree: tokens, grammar, macros, and going on after an error."""
