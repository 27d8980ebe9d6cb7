CREATE TABLE items (
  id BIGINT NOT NULL PRIMARY KEY,
  owner INT NOT NULL,
  title VARCHAR(100) NOT NULL,
  body TEXT,
  updated_at DATETIME NOT NULL,
  KEY owner (owner)
);

CREATE EXT VIEW item_by_id AS
SELECT id, owner, title, body, updated_at FROM items WHERE id = ?;

CREATE EXT VIEW items_of_owner AS
SELECT owner, id, title, updated_at FROM items WHERE owner = ? ORDER BY updated_at DESC, id DESC LIMIT 20;
