"""Kinds of jobs: what each kind is, what all have in common, and the rules that users declare for their own kinds."""
