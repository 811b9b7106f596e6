"""What Volcano's and KAI's objects may say, and what they say where nothing is written. Pure."""
