"""The vocabulary: types, paths, errors, and the decoding of every served version.

No clocks, no I/O, no opinion about whether a value is right.
"""
