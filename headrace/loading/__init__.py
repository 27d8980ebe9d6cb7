"""Bulk load: rows of files into a base table of a running server, each exactly once, whatever crashes between.

::

    files ─► sources ─► rows ─► chunks 1, 2, 3 … ─► checked ─► posting ── POST …/rows, once: stream, number ─► server
             CSV, JSON lines,    so many rows of       │                  ▲
             Parquet             the files, in order   └─► rejects        └── what it has done: GET …/streams/…

The rows of the files, in their order, are cut into numbered *chunks*, by what stands in the files alone. Each is posted
as the write of that number in a stream whose name is a digest of the files and of what decides about rows and chunks
(``running.py``). The server does every number once (``domains/store/storage.py``). So to go on after a crash is to run
the same command again: it asks the server for the last number, and begins behind it. There is no journal beside the
files.

A row that cannot be stored is *set aside*, with the reason, in a file of rejects: before its chunk is posted, and under
the chunk's number. What stands there of chunks that were not done is dropped when the load goes on, and found again.

===================  =======================================================================================
``table.py``         the table to load into, which column of a file is which of it, and a row's values as the table's
``sources.py``       files of any kind as rows, in batches; what no reader can read is a row with its problem
``preparing.py``     the same where files are large and many: read and checked by Spark
``chunks.py``        what the command line says about files, the errors, and rows cut into chunks
``rejects.py``       the file of rows that were set aside
``running.py``       all of it: the stream's name, posting chunks until they are done, progress
===================  =======================================================================================
"""
