"""Functions expressions may call: the standard library, CEL's extensions and those of Kubernetes."""
