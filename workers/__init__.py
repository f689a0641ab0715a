"""The processes that poll Temporal: `control` for workflows and records, `agent` for one Docker host."""
