"""Replaceable parts: how they are named, found, checked, and what they keep."""
