"""`untaint`: deletes the DeviceTaintRules that people have set on devices, and says what else taints them.

`choice` decides which rules are meant, `removal` deletes them.
"""
