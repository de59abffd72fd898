"""The audit verb: claims and templates at rest that the current policy would refuse."""
