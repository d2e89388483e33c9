"""The commands, one file each: only parsing and printing."""
