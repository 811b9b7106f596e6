"""The programs a cluster needs: compiled from Go modules, and images made on the spot."""
