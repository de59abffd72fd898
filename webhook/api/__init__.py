"""The vocabulary of all rooms: types, paths, errors, and the decoding of every served version.

In: JSON objects of any version, under a `decode.Reader`. Out: immutable values (`claims`, `slices`, `rules`, `patches`,
`pods`) and field errors for wrong types. `field` has paths, errors and findings; `schema` has the fields of every kind
by release. Start with `field` and `decode`. No clocks, no I/O, no opinion on whether a value is right.
"""
