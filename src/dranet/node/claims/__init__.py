"""Claims on this node: prepare and unprepare them, plan their devices, hold leases and profiles, recover lost plans."""
