"""Fixtures that every kind of test may use."""

pytest_plugins = ["tests.embedded_fixtures", "tests.rig.fixtures"]
