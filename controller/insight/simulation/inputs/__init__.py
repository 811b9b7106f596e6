"""Problems of manifests as they are written, and their sentences. Nothing here decides."""
