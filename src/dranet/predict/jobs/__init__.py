"""Pods that belong together: gangs, the places and rails of a job, and the bandwidth it gets as a whole."""
