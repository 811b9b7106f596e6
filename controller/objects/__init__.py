"""The API objects that the controller reads, as small typed values: JSON is decoded into frozen structs, and fields
that nobody reads are dropped.
"""
