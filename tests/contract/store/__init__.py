"""The store on a real Postgres, and its fake, held to the same promises."""
