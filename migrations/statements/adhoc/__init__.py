"""Ad-hoc SELECTs: constants become parameters, so that one view answers all queries of the same shape."""
