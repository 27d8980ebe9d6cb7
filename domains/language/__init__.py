"""Values and expressions: SQL types, their coercion, encoding and text, and expressions compiled to Python."""
