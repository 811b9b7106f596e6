"""Listeners whose connections are bounded in number, by owner, and in the time that each may take."""
