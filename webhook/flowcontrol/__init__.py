"""How fast, how often and in which order work is done; client-go's util/workqueue and util/flowcontrol.

`workqueue` holds items until they are ready, `token_bucket` and `throttle` limit rates, `backoff` spaces retries,
`timeslice` yields to the event loop, `write_behind` writes in the background, `clock` goes on while the machine is
suspended. Clocks and sources of randomness come in as arguments, keys are the caller's, and no other room is imported.
Start with `workqueue`, which `eviction` runs on.
"""
