"""What people ask the controller: the visibility API, the page, its sign-in, history and what-if."""
