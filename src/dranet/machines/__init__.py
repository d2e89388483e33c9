"""Machines and distances: shapes, the matrix, alignment, expected bandwidth. Pure: no machine is touched."""
