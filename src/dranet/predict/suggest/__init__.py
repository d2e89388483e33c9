"""The claim that gives aligned devices on given machines: for one machine, for a fleet, for one rail."""
