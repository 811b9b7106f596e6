"""The controller's knowledge, for users who may see it: an aggregated API server with delegated rights.

Its port speaks TLS only and answers no unknown user. ``identity`` tells who asks, ``routes`` what is asked, and
``redaction`` what is left out of an answer.
"""
