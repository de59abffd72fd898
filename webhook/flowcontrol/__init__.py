"""How fast, how often and in which order work is done; client-go's util/workqueue and util/flowcontrol.

`workqueue` holds items until they are ready and yields to the event loop, `rates` limits rates, spaces retries and
tells the time without an event loop, `loop` has what runs on one in the background. Clocks and sources of randomness
come in as arguments, keys are the caller's, and no other room is imported. Start with `workqueue`, which `eviction`
runs on.
"""
