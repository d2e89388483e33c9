"""Traffic control on links: qdiscs and filters, bandwidth shares, BPF programs."""
