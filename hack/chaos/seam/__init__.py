"""A folder for PYTHONPATH of the processes whose clock is stepped."""
