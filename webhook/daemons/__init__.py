"""The two long-running processes, put together: serve answers reviews, evict empties tainted devices."""
