"""`bundle`: an archive for a bug report or a support case, without secrets.

`command` has the flags; `from_cluster` reads, `redaction` takes secrets and, if asked, names out of
it, `archive` writes.
"""
