"""The rules, without clock and without I/O."""
