"""Into the pod and home again: order, deadline, locks, receipt."""
