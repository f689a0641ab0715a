"""The routes, one module per kind of thing."""
