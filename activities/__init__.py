"""What workflows may ask of the world: thin, idempotent, one dataclass in, one out; each module declares what it needs."""
