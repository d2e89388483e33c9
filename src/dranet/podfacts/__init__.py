"""What a process in the pod should know of its cards, in the forms that software already reads. Pure."""
