"""Local copies of collections of the API server, kept current by list and watch, as in client-go's tools/cache.

A `listwatch` reads JSON into wire structs and turns them into values; its store adds lists and events up and
notifies subscribers; a `reflector` drives both and recovers from errors. The other modules are reflectors with a
subject: the inventory, what a policy goes by (`names`), patches, disruption budgets. Start with `reflector.Reflector`.
"""
