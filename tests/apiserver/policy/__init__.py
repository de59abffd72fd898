"""A package, so that pytest ends what has its scope when the last test of this folder is done.

Without this file such fixtures would live until the end of the run, and their control planes with them.
"""
