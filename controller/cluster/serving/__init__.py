"""The side of a cluster that serves: any api process answers any request, with a copy of the decided state."""
