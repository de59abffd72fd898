"""`diff`: which objects of a cluster or a dump two policies judge differently."""
