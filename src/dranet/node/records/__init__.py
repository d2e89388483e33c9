"""The format of the store: the plan of a claim, its rows, and the sqlite file."""
