"""The running daemon: hooks, reconciliation, flags, metrics, logs."""
