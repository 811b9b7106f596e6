"""GPU metrics by pod: one pass over NVML each interval, divided among the pods, kept as text for scrapes.

fields, collectors     which figures, under which names (dcgm-exporter's)
reader, gpm, processes NVML to a ``GpuReading``, on the GPU's own thread
cgroups, owners        process to container to pod
allocation, shares     the holders of each device, and how much of it each used (pure)
energy, activity       sums over several passes (pure)
series, exposition     readings and shares to the text format
sampler                the shell around them: the times of passes, and GPUs that do not answer
"""
