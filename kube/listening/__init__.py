"""Listeners whose connections are bounded: how many there are, whose they are, and how long each may take."""
