"""What a manifest, or another quota, would change: the real engine, in a process of its own, on copies."""
