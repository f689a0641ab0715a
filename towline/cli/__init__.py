"""The command line. Modules here import what is slow inside the commands that need it: `--help` has to be quick."""
