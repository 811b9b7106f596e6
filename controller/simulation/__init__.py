"""The engine on files alone: manifests in, a timeline in virtual time out. Pure: ``cli`` reads and prints."""
