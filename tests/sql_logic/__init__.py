"""SQL logic tests: what each construct of the SQL list answers, as text. ``README.md`` has the format."""
