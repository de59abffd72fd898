"""The explain verb: why a policy allows or refuses, and what a code means."""
