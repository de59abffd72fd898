"""Flags and environment to frozen settings. Each room has its own settings class; this composes them.

Every flag can also be given as `DEVICE_TAINT_WEBHOOK_<FLAG>`; the command line wins. Nothing reads the environment
after this.
"""
