"""The database that the Go reference driver left on this node; read, never written."""
