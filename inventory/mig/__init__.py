"""MIG arithmetic: profiles, placements, and plans from one set of instances to another."""
