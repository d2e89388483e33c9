"""Tools that predict, explain and check what the scheduler and the hardware do with a user's manifests."""
