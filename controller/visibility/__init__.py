"""What the controller knows, for those who may see it: an aggregated API server with delegated rights.

Its port speaks TLS only and answers nobody unknown. Who asks is decided in ``identity``, what is asked in ``routes``,
what is left out of an answer in ``redaction``.
"""
