"""Listening: sockets, limits, deadlines and status codes. What a review means is decided downstairs."""
