"""What the scheduler will do: plan, explain and suggest, from manifests, allocation and topology."""
