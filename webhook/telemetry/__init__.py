"""Telling: what is logged and what is counted. It is told, it never asks, and it decides nothing."""
