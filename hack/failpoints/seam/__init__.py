"""A folder for PYTHONPATH of the processes whose failpoints are armed."""
