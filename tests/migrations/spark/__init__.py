"""Spark jobs. A session is started once for all modules, since a JVM takes some seconds."""
