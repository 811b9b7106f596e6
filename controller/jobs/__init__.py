"""Jobs of every kind as the queue sees them: what they ask for, how they are held, started, stopped, finished."""
