"""What pods measure between their cards before a job starts: who meets whom, the probes, and what the numbers say."""
