"""What the TLS server shows: where a certificate comes from, and whether it may be served. It knows no reviews."""
