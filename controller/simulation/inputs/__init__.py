"""What is wrong with manifests as they are written, and how it is told. Nothing here decides."""
