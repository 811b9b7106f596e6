"""The engine on files alone: manifests are read, and a timeline in virtual time is made. Pure: ``cli`` reads files and
prints.
"""
