"""Kinds of jobs: one pure module each, and the table that names them all."""
