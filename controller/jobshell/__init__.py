"""What the shells of jobs and of plain pods share: actions about a Workload, and what the watches know besides it."""
