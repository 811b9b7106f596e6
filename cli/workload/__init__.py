"""``tessera workload``: one workload or many, with the rights of the caller."""
