"""The health of every device, decided without I/O: what NVML reported goes in, transitions come out.

``HealthCore`` is the state machine, ``xids`` the table of what each XID means, ``settings`` what an administrator may
change, ``events`` what the shell can tell it. The shell (the agent) owns probes, timers, logs, Events and metrics.
"""
