"""What a process in the pod should know of its cards, in the forms that software already reads.

Pure, but for the topology file, which is read from a sysfs.
"""
