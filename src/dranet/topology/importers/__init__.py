"""Machines that others have written down, read as shapes: one file a format."""
