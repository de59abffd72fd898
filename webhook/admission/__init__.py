"""One review, decided: from bytes to decision to bytes, as pure functions of the request and its context."""
