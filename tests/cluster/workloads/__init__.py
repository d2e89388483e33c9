"""Real jobs over claimed NICs: what runs in their pods, how they are written down, and what they moved."""
