"""What a card should be like and is not: readings of the kernel, faults as data, and the policy over them.

Used by the driver while it runs and by `dranet check` once. A wrong fault takes a good card out of service, so a fault
is only what the kernel states or what clearly grows; what is merely unknown is never one.
"""
