"""Values that every layer shares: devices, attributes, NetworkConfig, names, limits, errors; HTTP, locks, logs."""
