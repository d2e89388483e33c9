"""What several rooms need and none owns: HTTP, waiting, locks, messages. Knows neither devices nor Kubernetes."""
