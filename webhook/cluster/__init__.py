"""The API server, and nobody else talks to it. It brings what the cluster says; what that means is decided below."""
