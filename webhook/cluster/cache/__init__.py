"""Local copies of collections of the API server, kept current by list and watch, as in client-go's tools/cache.

A `listwatch` reads JSON into wire structs and turns them into values; its store adds lists and events up and
notifies subscribers; a `reflector` drives both and recovers from errors. The other modules are reflectors with a
subject: the inventory, namespaces and device classes, disruption budgets, the policy's ConfigMap. Start with
`reflector.Reflector`.
"""
