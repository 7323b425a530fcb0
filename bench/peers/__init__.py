"""The real peers, started and stopped by the bench itself."""
