"""Declared runs whose tables are reported: each is one command, resumable cell by cell."""
