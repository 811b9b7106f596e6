"""A turn of a tree of KAI's Queues: its gangs, from the objects of the scheduler and back."""
