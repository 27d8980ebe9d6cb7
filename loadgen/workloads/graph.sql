CREATE TABLE node (
  id INT NOT NULL PRIMARY KEY,
  label VARCHAR(20) NOT NULL
);

CREATE TABLE edge (
  id INT NOT NULL PRIMARY KEY,
  src INT NOT NULL,
  dst INT NOT NULL,
  KEY src (src),
  KEY dst (dst)
);

CREATE VIEW within_two AS
SELECT src, dst, 1 AS n
FROM edge
UNION ALL
SELECT a.src, b.dst, 2
FROM edge a
JOIN edge b ON b.src = a.dst;

CREATE EXT VIEW node_by_id AS
SELECT id, label
FROM node
WHERE id = ?;

CREATE EXT VIEW one_hop AS
SELECT e.dst
FROM edge e
WHERE e.src = ?;

CREATE EXT VIEW two_hops AS
SELECT DISTINCT b.dst
FROM edge a
JOIN edge b ON b.src = a.dst
WHERE a.src = ?;

CREATE EXT VIEW path AS
SELECT MIN(w.n) AS hops
FROM (
  SELECT src, dst, n FROM within_two
  UNION ALL
  SELECT f.src, b.dst, f.n + b.n FROM within_two f JOIN within_two b ON b.src = f.dst WHERE f.n = 2
) w
WHERE w.src = ? AND w.dst = ?;
