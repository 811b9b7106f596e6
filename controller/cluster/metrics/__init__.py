"""The controller's metrics: Kueue's series under Kueue's names, and Tessera's own."""
