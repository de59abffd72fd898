"""Single requests to one API server, over aiohttp.

Paths and objects go in; bytes come out, or a ClusterError. `credentials` finds the server and the identity (a pod's
service account, or a kubeconfig), `proxy` and `connections` follow curl and kubectl, `throttled` adds a rate limit and
requests that change things, `list_pages` reads whole collections. Start with `rest.Cluster`.
"""
