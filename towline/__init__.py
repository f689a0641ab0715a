"""Towline: container sessions on a fleet of Docker hosts, each session's life a durable Temporal workflow."""
