"""Expressions of SQL as typed values: names and their scope, literals, calls, aggregates, and what is a parameter."""
