"""Fuzzing of every parser of outside bytes: ``python -m hack.fuzz``; see docs/hostile-input.md.

target.py     what a target is, and one execution of it
mutating.py   new inputs out of old ones, by the shape of JSON and text
node.py, nvml.py, cluster.py, common.py   the targets, by who reads; nodeseeds.py, clusterseeds.py: inputs to begin with
targets.py    all of them
worker.py     one target under atheris, in a process of its own
outcome.py    what a run came to, as a table and as JSON
"""
