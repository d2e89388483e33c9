"""Measurements, side by side with the tools people know, as ratios inside one run."""
