"""The agent as a client of the API server: it writes the node's labels, GpuNode and Events, and follows its Node and
the GpuLayouts.
"""
