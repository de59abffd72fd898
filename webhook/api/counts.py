"""Numbers in messages, with their noun in the singular or the plural."""


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
