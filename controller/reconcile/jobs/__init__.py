"""The controller of jobs of every kind: their requests, and how they are held, started, stopped and finished."""
