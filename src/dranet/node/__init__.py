"""The daemon on a node: discovers NICs, prepares claims, moves devices into pods and back."""
