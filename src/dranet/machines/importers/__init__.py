"""Importers: machine descriptions of other tools, read as shapes. One file for each format."""
