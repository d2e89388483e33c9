"""Offloads and BPF programs of a card: what ethtool and bpftool would do, done at prepare where possible."""
