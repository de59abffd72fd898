"""Single requests to the API server: credentials, TLS, proxies, errors, limits on how fast. Start with rest.Cluster."""
