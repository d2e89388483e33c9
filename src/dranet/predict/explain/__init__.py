"""Why a claim got its devices or cannot get any, and the smallest change that would help."""
