"""SQL on ``/v1/sql``: statements one after the other, ad-hoc SELECTs, and writes that go to several shards."""
