"""``headrace bench scale``: what a request costs on clusters of several sizes, and the model drawn from the counts."""
