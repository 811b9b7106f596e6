"""The output of decisions: conditions of the Workload, reasons, records of the arithmetic, and sentences made from
them.
"""
