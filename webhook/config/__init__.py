"""Flags and environment variables, parsed into frozen settings.

In: an argument list and a mapping of environment variables. Out: the settings of a daemon, or all mistakes at once as a
ConfigError. Each room defines its own settings class; this room composes them. Every flag can also be given as
`DEVICE_TAINT_WEBHOOK_<FLAG>`; the command line wins. Nothing reads the environment after this. Start with `settings`,
then `serve` or `workers`. The flags of other verbs are in `commands`; all use `command_line` and `texts`.
"""
