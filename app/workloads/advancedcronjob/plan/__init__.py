"""What is due, what runs, and what is kept of it: pure functions."""
