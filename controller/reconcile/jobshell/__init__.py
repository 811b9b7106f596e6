"""Parts that the shells of jobs and of plain pods share: actions about a Workload, and the state of the watches besides
it.
"""
