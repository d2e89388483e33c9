"""Hours of a node's life in minutes: one driver process, pods that come and go, links that flap, a server that goes."""
