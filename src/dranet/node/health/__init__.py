"""Health of the node's devices: readings of the kernel, the faults in them, and the policy that weighs faults.

The driver runs it while it serves, `dranet check` runs it once. A wrong fault takes a good device out of service, so a
fault is only what the kernel states or what clearly grows. An unknown value is never a fault.
"""
