"""The doctor verb: whether an installation is healthy."""
