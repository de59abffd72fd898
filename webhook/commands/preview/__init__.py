"""The preview verb: which pods a taint would evict, when and why."""
