"""The test verb: test suites of policies."""
