"""MySQL's protocol, asked by drivers as they come and byte by byte."""
