"""Checked tree to closures, and what evaluating them costs."""
