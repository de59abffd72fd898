"""`audit`: claims and templates at rest, in a dump or a cluster, that the policy would refuse today."""
