"""A fleet on one machine: thousands of our real publishers against a real API server and etcd, measured."""
