"""One file a kind of device or aspect of one."""
