"""Jobs whose pods are real objects, on nodes that kwok plays."""
