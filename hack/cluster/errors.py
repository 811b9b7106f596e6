"""What can go wrong, split by what the caller must do."""


class ClusterError(Exception):
    """The cluster did not come up or an operation on it failed. Exit code 1; the message ends with the log's tail."""


class UsageError(ClusterError):
    """The call cannot work as it was made: a wrong name, or a machine that lacks something. Exit code 2."""
