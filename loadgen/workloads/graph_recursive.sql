CREATE EXT VIEW path AS
WITH RECURSIVE f (node, n) AS (
  SELECT dst, 1 FROM edge WHERE src = ?
  UNION SELECT e.dst, f.n + 1 FROM f JOIN edge e ON e.src = f.node WHERE f.n < 4
)
SELECT MIN(f.n) AS hops
FROM f
WHERE f.node = ?;
