"""``headrace bench replay``: how fast base logs are read back, and how long full state takes to be built from them."""
