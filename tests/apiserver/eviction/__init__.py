"""A package, so that pytest ends the control planes of this folder when its last test is done."""
