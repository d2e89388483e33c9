"""Real jobs over claimed cards: what runs in their pods, how they are written down, and what they moved."""
