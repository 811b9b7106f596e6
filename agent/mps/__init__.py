"""MPS: a control daemon for each shared GPU or MIG instance, kept alive by the agent."""
