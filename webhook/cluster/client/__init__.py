"""Single requests to one API server, over aiohttp.

Paths and objects go in; bytes come out, or a ClusterError. `credentials` finds the server and the identity (a pod's
service account, or a kubeconfig), `connections` follows curl and kubectl on the way there, `answers` and `list_pages`
read objects and whole collections. Every request goes the same way in `rest`: to `rest.Cluster._answered`, which sends
it again once after a 401. Start with `rest.Cluster`.
"""
