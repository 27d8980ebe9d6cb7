CREATE TABLE stories (
  id INT NOT NULL PRIMARY KEY,
  author INT NOT NULL,
  title VARCHAR(100) NOT NULL
);

CREATE TABLE votes (
  user_id INT NOT NULL,
  story_id INT NOT NULL,
  KEY story_id (story_id)
);

CREATE VIEW vote_count AS
SELECT story_id, COUNT(*) AS votes
FROM votes
GROUP BY story_id;

CREATE EXT VIEW story_with_votes AS
SELECT s.id, s.author, s.title, COALESCE(v.votes, 0) AS votes
FROM stories s
LEFT JOIN vote_count v ON v.story_id = s.id
WHERE s.id IN (?);
