"""The only code that speaks to Docker Engines and to registries."""
