"""What happens to packets on a link: queueing disciplines and filters, shares of bandwidth, BPF programs."""
