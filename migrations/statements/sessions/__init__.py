"""What a session says and asks: SET and USE, ``@@variables``, DATABASE() and the like, and SHOW."""
