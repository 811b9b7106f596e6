"""KAI's rules: queues that share in proportion, and gangs placed by sessions that can be undone."""
