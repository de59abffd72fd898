"""What the cluster holds, and what a taint would do to it. No I/O, no clock."""
