"""What the Go reference driver left on this node: its database, read and never written."""
