"""The durable story: no I/O, no settings, no clock but `workflow.now()`."""
