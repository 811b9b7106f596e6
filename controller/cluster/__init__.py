"""The API server's side of the controller: watches, writes, webhooks, metrics, configuration and the process."""
