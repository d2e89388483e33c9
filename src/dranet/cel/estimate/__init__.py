"""The worst case an expression can cost, before any data is seen."""
