"""What the controller measures: Kueue's series under Kueue's names, and Tessera's own."""
