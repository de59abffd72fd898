"""A package, so that pytest ends the control plane of this folder when its last test is done."""
