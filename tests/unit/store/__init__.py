"""The store, as far as it needs no database."""
