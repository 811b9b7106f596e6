"""The cluster controller: which job runs next, and where."""
