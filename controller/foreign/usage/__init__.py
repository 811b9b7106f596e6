"""Past use of KAI's Queues as a Prometheus measured it."""
