"""The serving certificate: where it comes from, when it is renewed, and the TLS context that serves it.

In: files, or a Secret and webhook configurations behind the protocols in `settings`. Out: an `ssl.SSLContext` for each
handshake, and a problem for `/readyz` if there is none. `source` has the certificate in files and the CA of our own;
`rotation.next_step` decides, without I/O, what a CA's next step is. It knows neither reviews nor the client of the
cluster. Start with `source.CertificateSource`.
"""
