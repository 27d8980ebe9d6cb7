"""The side of a cluster that serves: any api process answers any request, from a copy of what was decided."""
