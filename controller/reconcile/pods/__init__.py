"""Plain pods and pod groups as jobs: the pure reconciler and its shell."""
