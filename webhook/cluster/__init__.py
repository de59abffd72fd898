"""Every request that this program makes to the API server.

`client` makes single requests, `cache` keeps local copies by list and watch. The modules beside them do one thing each
with the two: leader election, Events, evictions, the canary, the objects of an installation. JSON goes out;
values of `api`, `inventory` and `policy` come in, and other rooms decide what follows from them. Errors of libraries
do not leave this room: callers catch those of `client.errors`. Start with `client.rest` and `cache.reflector`.
"""
