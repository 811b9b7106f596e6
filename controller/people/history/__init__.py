"""What Prometheus has of the past, and of what GPUs do now: fixed questions, asked once for all readers."""
