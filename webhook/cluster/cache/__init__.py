"""Local copies of what the API server holds, kept current by list and watch. Start with reflector.Reflector."""
