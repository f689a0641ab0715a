"""PostgreSQL and Temporal's dev server as child processes, and the supervisor that runs a whole stack in the foreground."""
