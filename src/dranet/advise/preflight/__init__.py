"""Network checks between pods before a job starts: `dranet check pair` and the Job that runs it.

The pod of rank 0 coordinates (`coordinator`); every pod, this one included, is a member that measures between its NICs
and those of other pods (`member`, `probes`). `diagnosis` decides from the results which NIC is at fault.
"""
