"""What charts draw: figures over time, windows of steps, and what the clocks allow to be drawn."""
