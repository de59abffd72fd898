"""`drain`: taints the devices of a node or pool, has the eviction worker empty them, and reports how far it is.

`progress` says what has happened since the last look and how the drain has ended; `watching` looks again and again.
"""
