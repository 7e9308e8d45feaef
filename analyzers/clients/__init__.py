"""What the clients saw, and what the processes held."""
