"""SELECTs that SQLite judges: text, values for the ``?`` (several tuples: each is asked), and SQLite's own text where
the two dialects spell or mean it differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    sql: str
    values: tuple[tuple[Any, ...], ...] = ((),)
    sqlite: str | None = None


def with_values(sql: str, *values: Any, sqlite: str | None = None) -> Case:
    return Case(sql, tuple(v if isinstance(v, tuple) else (v,) for v in values), sqlite)


PLAIN = """
SELECT * FROM stories
SELECT id FROM stories
SELECT s.* FROM stories s
SELECT s.*, s.id FROM stories s
SELECT title, id + 1 AS next, -score AS minus FROM stories
SELECT id, score * 2 - 1 FROM stories
SELECT 1, 'x', NULL, id FROM stories
SELECT * FROM vacant
SELECT ID, Title FROM STORIES
SELECT id FROM stories WHERE score > 0
SELECT id FROM stories WHERE score > 0 AND author = 2
SELECT id FROM stories WHERE score > 0 OR author = 2
SELECT id FROM stories WHERE NOT (score > 0)
SELECT id FROM stories WHERE NOT (score > 0 OR author IS NULL)
SELECT id FROM stories WHERE score IS NULL
SELECT id FROM stories WHERE score IS NOT NULL AND title IS NULL
SELECT id FROM stories WHERE score BETWEEN 0 AND 3
SELECT id FROM stories WHERE score NOT BETWEEN 0 AND 3
SELECT id FROM stories WHERE author IN (1, 3)
SELECT id FROM stories WHERE author NOT IN (1, 3)
SELECT id FROM stories WHERE author IN (1, NULL)
SELECT id FROM stories WHERE author NOT IN (1, NULL)
SELECT id FROM stories WHERE (author, score) IN ((1, 2), (2, 3), (3, 0))
SELECT id FROM stories WHERE title LIKE 'apple%'
SELECT id FROM stories WHERE title NOT LIKE '%e'
SELECT id FROM stories WHERE title <> 'corn'
SELECT id FROM stories WHERE 1 = 1
SELECT id FROM stories WHERE 1 = 0
SELECT id FROM stories WHERE NULL
SELECT id FROM stories WHERE score
SELECT id FROM stories WHERE TRUE AND score = 1
SELECT id, CASE WHEN score > 2 THEN 'high' WHEN score > 0 THEN 'low' END FROM stories
SELECT id, CASE author WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END c FROM stories
SELECT id, COALESCE(title, 'none'), IFNULL(score, 0), NULLIF(author, 1) FROM stories
SELECT id, UPPER(title), LOWER(title), LENGTH(title) FROM stories
SELECT id, score > 1, score = 1 AND author = 1, title IS NULL FROM stories
SELECT DISTINCT author FROM stories
SELECT DISTINCT author, score FROM stories
SELECT DISTINCT author + 1 FROM stories
SELECT DISTINCT * FROM votes
SELECT DISTINCT author, author AS again FROM stories
SELECT s.id, u.name FROM stories s JOIN users u ON s.author = u.id
SELECT s.id, u.name FROM stories s INNER JOIN users u ON u.id = s.author AND u.karma > 1
SELECT s.id, u.name FROM stories s, users u WHERE s.author = u.id
SELECT s.id, u.name FROM stories s, users u WHERE s.author = u.id AND s.score > 0 AND u.name <> ''
SELECT s.id, u.id FROM stories s CROSS JOIN users u
SELECT s.id, u.id FROM stories s, users u WHERE s.score > u.karma
SELECT s.id, u.id FROM stories s JOIN users u ON s.score > u.karma AND s.author = u.id
SELECT s.id, u.id FROM stories s JOIN users u ON s.author + 1 = u.id
SELECT s.id, u.id FROM stories s JOIN users u ON s.author + 1 = u.id * 2 - 1
SELECT s.id, u.id FROM stories s JOIN users u ON s.score = u.karma
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id AND u.karma > 1
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id AND s.score > 1
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id AND s.score > u.karma
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.score > u.karma
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE u.id IS NULL
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE u.karma > 1
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE s.score > 1
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE COALESCE(u.karma, 0) < 2
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE u.karma > 1 OR s.score > 2
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON s.author = u.id WHERE NOT (u.karma > 1)
SELECT s.id, u.name FROM stories s RIGHT JOIN users u ON s.author = u.id
SELECT * FROM stories s RIGHT JOIN users u ON s.author = u.id AND s.score > 0 WHERE u.karma > 0
SELECT s.id, v.user, u.name FROM stories s LEFT JOIN votes v ON v.story_id = s.id LEFT JOIN users u ON u.id = v.user
SELECT s.id, v.user, u.name FROM stories s LEFT JOIN votes v ON v.story_id = s.id JOIN users u ON u.id = v.user
SELECT s.id, v.user, u.name FROM stories s LEFT JOIN (votes v JOIN users u ON u.id = v.user) ON v.story_id = s.id
SELECT s.id, v.user FROM stories s LEFT JOIN votes v ON v.story_id = s.id AND v.vote = 1 WHERE v.user IS NULL
SELECT a.id, b.id FROM stories a JOIN stories b ON a.author = b.author AND a.id < b.id
SELECT a.id, b.id, c.id FROM stories a, stories b, stories c WHERE a.author = c.author AND c.score = b.score
SELECT a.id, v.vote, b.id FROM stories a, votes v, stories b WHERE a.id = v.story_id AND b.id = v.user AND a.author = b.author
SELECT a.id, n.x FROM stories a LEFT JOIN vacant n ON n.x = a.id
SELECT u.id, b.name FROM users u JOIN users b ON u.boss = b.id
SELECT story_id, tag, vote FROM votes JOIN tags USING (story_id)
SELECT story_id, tag FROM votes NATURAL JOIN tags
SELECT story_id, tags.story_id, votes.story_id FROM votes LEFT JOIN tags USING (story_id)
SELECT u.id, s.id, v.vote FROM users u, stories s LEFT JOIN votes v ON v.story_id = s.id WHERE u.id = s.author
SELECT x.id FROM (SELECT id, author FROM stories WHERE score > 0) x WHERE x.author = 1
SELECT x.n, y.m FROM (SELECT id + 1 AS n, author FROM stories) x JOIN (SELECT id * 2 AS m, boss FROM users) y ON x.author = y.boss
SELECT x.n FROM (SELECT id + 1 AS n FROM stories) x WHERE x.n > 4
SELECT x.c, u.id FROM users u LEFT JOIN (SELECT author, 1 AS c FROM stories) x ON x.author = u.id
SELECT x.author, x.total FROM (SELECT author, SUM(score) AS total FROM stories GROUP BY author) x WHERE x.author > 1
SELECT x.author, x.total FROM (SELECT author, SUM(score) AS total FROM stories GROUP BY author) x WHERE x.total > 1
SELECT * FROM (SELECT DISTINCT author FROM stories) x WHERE x.author > 1
SELECT * FROM VoteCount
SELECT * FROM StoriesWithVC WHERE vcount > 1
SELECT w.id, w.vcount, v.vcount FROM StoriesWithVC w JOIN VoteCount v ON w.id = v.story_id
SELECT story, words FROM Titles WHERE story > 3
SELECT * FROM Best
SELECT s.id FROM stories s JOIN Best b ON b.id = s.id
WITH x AS (SELECT id, author FROM stories WHERE score > 0) SELECT * FROM x
WITH x AS (SELECT id, author FROM stories), y AS (SELECT author, COUNT(*) n FROM x GROUP BY author) SELECT x.id, y.n FROM x JOIN y ON x.author = y.author
WITH x (a, b) AS (SELECT id, author FROM stories) SELECT b, a FROM x WHERE a > 2
WITH stories AS (SELECT id FROM users) SELECT * FROM stories
SELECT COUNT(*) FROM stories
SELECT COUNT(*) FROM vacant
SELECT COUNT(score), COUNT(*), COUNT(1), COUNT(NULL) FROM stories
SELECT SUM(score), MIN(score), MAX(score), AVG(score) FROM stories
SELECT SUM(x), MIN(x), AVG(x), COUNT(x) FROM vacant
SELECT COUNT(DISTINCT author), SUM(DISTINCT score), AVG(DISTINCT score), MAX(DISTINCT score) FROM stories
SELECT SUM(karma), AVG(karma), MIN(name), MAX(name) FROM users
SELECT author, COUNT(*) FROM stories GROUP BY author
SELECT author, COUNT(*) AS n, SUM(score) FROM stories GROUP BY author
SELECT author, score, COUNT(*) FROM stories GROUP BY author, score
SELECT COUNT(*) FROM stories GROUP BY author
SELECT author FROM stories GROUP BY author
SELECT author + 1, COUNT(*) FROM stories GROUP BY author + 1
SELECT author + 1 AS a, COUNT(*) FROM stories GROUP BY a
SELECT author + 1, COUNT(*) FROM stories GROUP BY 1
SELECT author + 1 + COUNT(*) FROM stories GROUP BY author + 1
SELECT author, SUM(score + 1) * 2 FROM stories GROUP BY author
SELECT author, SUM(score) / COUNT(score) > 1 FROM stories GROUP BY author
SELECT author, COUNT(*) FROM stories GROUP BY author HAVING COUNT(*) > 1
SELECT author, COUNT(*) AS n FROM stories GROUP BY author HAVING n > 1
SELECT author FROM stories GROUP BY author HAVING SUM(score) > 1 AND author IS NOT NULL
SELECT author, COUNT(*) FROM stories GROUP BY author HAVING author > 1
SELECT COUNT(*) FROM stories HAVING COUNT(*) > 100
SELECT SUM(score) FROM stories WHERE 1 = 0
SELECT id, score + 1 AS s FROM stories WHERE id > 0 GROUP BY id, score HAVING s > 1
SELECT s.id, s.title, COUNT(v.user) AS n FROM stories s LEFT JOIN votes v ON v.story_id = s.id GROUP BY s.id
SELECT s.*, COUNT(v.user) AS n FROM stories s LEFT JOIN votes v ON v.story_id = s.id GROUP BY s.id
SELECT u.name, COUNT(*) FROM users u JOIN stories s ON s.author = u.id GROUP BY u.id
SELECT CASE WHEN score > 1 THEN 'a' ELSE 'b' END AS class, COUNT(*) FROM stories GROUP BY class
SELECT author, MIN(title), MAX(title) FROM stories GROUP BY author
SELECT author, SUM(score) FROM stories WHERE title IS NOT NULL GROUP BY author
SELECT DISTINCT COUNT(*) FROM stories GROUP BY author
SELECT author, COUNT(*) FROM (SELECT DISTINCT author, score FROM stories) x GROUP BY author
SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM votes GROUP BY story_id) x
SELECT id FROM stories WHERE author IN (SELECT id FROM users)
SELECT id FROM stories WHERE author IN (SELECT id FROM users WHERE karma > 1) AND score > 0
SELECT id FROM stories WHERE author IN (SELECT boss FROM users)
SELECT id FROM stories WHERE author NOT IN (SELECT boss FROM users)
SELECT id FROM stories WHERE author NOT IN (SELECT boss FROM users WHERE boss IS NOT NULL)
SELECT id FROM stories WHERE author NOT IN (SELECT x FROM vacant)
SELECT id FROM stories WHERE author IN (SELECT x FROM vacant)
SELECT id FROM stories WHERE author IN (SELECT boss FROM users) OR score > 3
SELECT id FROM stories WHERE author NOT IN (SELECT boss FROM users) OR score > 3
SELECT id, author IN (SELECT boss FROM users) FROM stories
SELECT id, author NOT IN (SELECT boss FROM users WHERE boss > 2) AS outside FROM stories
SELECT id FROM stories WHERE author + 1 IN (SELECT id FROM users)
SELECT id FROM stories WHERE (author, score) IN (SELECT user, vote FROM votes)
SELECT id FROM stories WHERE EXISTS (SELECT 1 FROM users WHERE karma > 1)
SELECT id FROM stories WHERE EXISTS (SELECT * FROM vacant)
SELECT id FROM stories WHERE NOT EXISTS (SELECT * FROM vacant)
SELECT id FROM stories WHERE NOT EXISTS (SELECT * FROM users)
SELECT id FROM stories WHERE EXISTS (SELECT * FROM vacant) OR score > 1
SELECT id, EXISTS (SELECT * FROM vacant), NOT EXISTS (SELECT * FROM vacant) FROM stories
SELECT id FROM stories WHERE score = (SELECT MAX(score) FROM stories)
SELECT id FROM stories WHERE score > (SELECT AVG(score) FROM stories)
SELECT id, (SELECT COUNT(*) FROM votes) AS n FROM stories
SELECT id, score - (SELECT MIN(score) FROM stories) FROM stories
SELECT id FROM stories WHERE author = (SELECT id FROM users ORDER BY karma DESC, id LIMIT 1)
SELECT id, (SELECT x FROM vacant LIMIT 1) FROM stories
SELECT id FROM stories WHERE score > 0 AND author IN (SELECT author FROM stories GROUP BY author HAVING COUNT(*) > 1)
SELECT author, COUNT(*) FROM stories GROUP BY author HAVING COUNT(*) > (SELECT MIN(karma) FROM users)
SELECT author, COUNT(*) + (SELECT COUNT(*) FROM users) FROM stories GROUP BY author
SELECT author, COUNT(*) FROM stories GROUP BY author HAVING author IN (SELECT boss FROM users)
SELECT author, author IN (SELECT boss FROM users) FROM stories GROUP BY author
SELECT SUM(author IN (SELECT id FROM users WHERE karma > 1)) FROM stories
SELECT id FROM stories WHERE author IN (SELECT boss FROM users WHERE id IN (SELECT user FROM votes))
SELECT s.id FROM stories s LEFT JOIN users u ON u.id = s.author WHERE u.boss IN (SELECT id FROM users)
SELECT id FROM stories UNION SELECT id FROM users
SELECT id FROM stories UNION ALL SELECT id FROM users
SELECT author FROM stories UNION SELECT boss FROM users UNION ALL SELECT user FROM votes
SELECT author FROM stories UNION ALL SELECT boss FROM users UNION SELECT user FROM votes
SELECT id, title FROM stories UNION ALL SELECT id, name FROM users WHERE karma > 0
SELECT score FROM stories UNION SELECT karma FROM users
SELECT x.id, COUNT(*) FROM (SELECT id FROM stories UNION ALL SELECT story_id FROM votes) x GROUP BY x.id
SELECT x.id FROM (SELECT id, score FROM stories UNION ALL SELECT story_id, vote FROM votes) x WHERE x.score > 0
SELECT id FROM stories WHERE id IN (SELECT story_id FROM votes UNION SELECT story_id FROM tags)
SELECT u.name, t.tag, SUM(t.weight) FROM users u JOIN stories s ON s.author = u.id JOIN tags t ON t.story_id = s.id GROUP BY u.name, t.tag
SELECT s.id, vc.vcount, tc.n FROM stories s LEFT JOIN VoteCount vc ON vc.story_id = s.id LEFT JOIN (SELECT story_id, COUNT(*) n FROM tags GROUP BY story_id) tc ON tc.story_id = s.id
SELECT id FROM stories LIMIT 0
SELECT COUNT(*) FROM stories LIMIT 1
SELECT COUNT(*) FROM stories LIMIT 1 OFFSET 1
"""

ORDERED = """
SELECT id, score FROM stories ORDER BY score, id
SELECT id, score FROM stories ORDER BY score DESC, id DESC
SELECT id, score AS s FROM stories ORDER BY s, 1
SELECT id FROM stories ORDER BY score, title, id
SELECT id FROM stories ORDER BY score + author, id DESC
SELECT id, title FROM stories ORDER BY 2 DESC, 1
SELECT id FROM stories ORDER BY id LIMIT 3
SELECT id FROM stories ORDER BY score DESC, id LIMIT 3 OFFSET 2
SELECT id FROM stories ORDER BY score DESC, id LIMIT 2, 3
SELECT id FROM stories ORDER BY id LIMIT 100
SELECT author, COUNT(*) FROM stories GROUP BY author ORDER BY COUNT(*) DESC, author
SELECT author, COUNT(*) AS n FROM stories GROUP BY author ORDER BY n, author LIMIT 2
SELECT author FROM stories GROUP BY author ORDER BY SUM(score), author
SELECT DISTINCT author FROM stories ORDER BY author DESC
SELECT DISTINCT author, score FROM stories ORDER BY score + author, author LIMIT 3
SELECT id FROM stories UNION SELECT id FROM users ORDER BY id DESC
SELECT id AS n FROM stories UNION ALL SELECT boss FROM users ORDER BY n LIMIT 4
SELECT id FROM stories ORDER BY 'x', id
SELECT id FROM stories ORDER BY author IS NULL, author, id
SELECT s.id, u.name FROM stories s LEFT JOIN users u ON u.id = s.author ORDER BY u.name, s.id
SELECT id FROM (SELECT id, score FROM stories ORDER BY score, id LIMIT 4) x ORDER BY id DESC LIMIT 2
SELECT COUNT(*) FROM (SELECT id FROM stories ORDER BY id LIMIT 3) x ORDER BY 1
SELECT id, score > (SELECT AVG(score) FROM stories) AS above FROM stories ORDER BY above, id
"""

SPELLED_DIFFERENTLY = (
    Case("SELECT id, score / 2 FROM stories", sqlite="SELECT id, score / 2.0 FROM stories"),
    Case("SELECT id, score DIV 2, score % 2 FROM stories", sqlite="SELECT id, score / 2, score % 2 FROM stories"),
    Case("SELECT id, score / author FROM stories", sqlite="SELECT id, score * 1.0 / author FROM stories"),
    Case("SELECT id, IF(score > 1, 'x', 'y') FROM stories", sqlite="SELECT id, iif(score > 1, 'x', 'y') FROM stories"),
    Case("SELECT CONCAT(title, '-', id) FROM stories", sqlite="SELECT title || '-' || id FROM stories"),
    Case("SELECT id FROM stories WHERE author <=> NULL", sqlite="SELECT id FROM stories WHERE author IS NULL"),
    Case("SELECT id FROM stories WHERE author <=> score", sqlite="SELECT id FROM stories WHERE author IS score"),
    Case("SELECT id FROM stories WHERE author = 1 XOR score = 1", sqlite="SELECT id FROM stories WHERE (author = 1) <> (score = 1)"),
    Case("SELECT id FROM stories WHERE author = 1 && score > 0 || id = 2", sqlite="SELECT id FROM stories WHERE author = 1 AND score > 0 OR id = 2"),
    Case("SELECT a.id, b.id FROM stories a JOIN stories b ON a.author <=> b.author", sqlite="SELECT a.id, b.id FROM stories a JOIN stories b ON a.author IS b.author"),
    Case("SELECT COUNT(DISTINCT author, score) FROM stories", sqlite="SELECT COUNT(DISTINCT author || ':' || score) FROM stories"),
    Case("SELECT author, GROUP_CONCAT(id ORDER BY id DESC SEPARATOR '-') FROM stories GROUP BY author", sqlite="SELECT author, (SELECT group_concat(i, '-') FROM (SELECT id i FROM stories t WHERE t.author IS s.author ORDER BY id DESC)) FROM stories s GROUP BY author"),
    Case("SELECT GROUP_CONCAT(DISTINCT tag) FROM tags", sqlite="SELECT group_concat(tag) FROM (SELECT DISTINCT tag FROM tags ORDER BY tag)"),
    Case("SELECT author, ANY_VALUE(score) FROM stories GROUP BY author", sqlite="SELECT author, MIN(score) FROM stories GROUP BY author"),
    Case("SELECT author, title FROM stories WHERE title = 'corn' GROUP BY author", sqlite="SELECT author, title FROM stories WHERE title = 'corn' GROUP BY author, title"),
    Case("SELECT id FROM stories LIMIT 3", sqlite="SELECT id FROM stories ORDER BY id LIMIT 3"),
    Case("(SELECT id FROM stories ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM users ORDER BY id DESC LIMIT 1)", sqlite="SELECT * FROM (SELECT id FROM stories ORDER BY id LIMIT 2) UNION ALL SELECT * FROM (SELECT id FROM users ORDER BY id DESC LIMIT 1)"),
    Case("(SELECT id FROM stories) ORDER BY id LIMIT 2", sqlite="SELECT id FROM stories ORDER BY id LIMIT 2"),
    Case("SELECT id FROM stories FOR UPDATE", sqlite="SELECT id FROM stories"),
    Case("SELECT STRAIGHT_JOIN s.id FROM stories s USE INDEX (x) JOIN users u ON u.id = s.author", sqlite="SELECT s.id FROM stories s JOIN users u ON u.id = s.author"),
    Case("SELECT id FROM stories WHERE author IS TRUE", sqlite="SELECT id FROM stories WHERE author IS TRUE"),
    Case("SELECT id, CAST(score AS CHAR) FROM stories", sqlite="SELECT id, CAST(score AS TEXT) FROM stories"),
    Case("SELECT * FROM votes JOIN tags USING (story_id)", sqlite="SELECT story_id, user, vote, tag, weight FROM votes JOIN tags USING (story_id)"),
    Case("SELECT * FROM votes NATURAL LEFT JOIN tags", sqlite="SELECT story_id, user, vote, tag, weight FROM votes LEFT JOIN tags USING (story_id)"),
    Case("SELECT * FROM votes RIGHT JOIN tags USING (story_id)", sqlite="SELECT tags.story_id, user, vote, tag, weight FROM tags LEFT JOIN votes ON tags.story_id = votes.story_id"),
    Case("SELECT story_id, tag FROM votes RIGHT JOIN tags USING (story_id)", sqlite="SELECT tags.story_id, tag FROM tags LEFT JOIN votes ON tags.story_id = votes.story_id"),
    Case("SELECT s.id FROM stories s STRAIGHT_JOIN users u ON u.id = s.author", sqlite="SELECT s.id FROM stories s JOIN users u ON u.id = s.author"),
)

PARAMETERISED = (
    with_values("SELECT * FROM stories WHERE id = ?", 1, 3, 5, 99),
    with_values("SELECT title FROM stories WHERE ? = author", 1, 2, 9),
    with_values("SELECT id FROM stories WHERE author = ? AND score = ?", (1, 0), (2, 3), (1, 1)),
    with_values("SELECT id FROM stories WHERE author IN (?, ?)", (1, 2), (3, 9)),
    with_values("SELECT id FROM stories WHERE score > ? ORDER BY score, id", -1, 2),
    with_values("SELECT id FROM stories WHERE score <= ?", 0, 4),
    with_values("SELECT id FROM stories WHERE score BETWEEN ? AND ?", (0, 2), (-3, 6)),
    with_values("SELECT id FROM stories WHERE score BETWEEN 0 AND ?", 2, 6),
    with_values("SELECT id FROM stories WHERE ? < score AND author = ?", (0, 1), (-3, 2)),
    with_values("SELECT id FROM stories WHERE author = ? AND score >= ? AND score < ? ORDER BY score DESC, id LIMIT 2", (1, -3, 6), (2, 0, 5)),
    with_values("SELECT COUNT(*) FROM votes WHERE story_id = ?", 1, 2, 3, 99),
    with_values("SELECT COUNT(*) + 1, SUM(vote), MAX(vote) FROM votes WHERE story_id = ?", 1, 2, 99),
    with_values("SELECT COUNT(*) FROM votes WHERE story_id = ? AND user = ?", (1, 2), (3, 3), (99, 1)),
    with_values("SELECT COUNT(*) FROM votes WHERE story_id = ? HAVING COUNT(*) > 0", 1, 99),
    with_values("SELECT COUNT(*) FROM votes WHERE story_id = ? LIMIT 1", 1, 99),
    with_values("SELECT x.n + 1 FROM (SELECT COUNT(*) AS n FROM votes WHERE story_id = ?) x", 1, 99),
    with_values("SELECT x.n FROM (SELECT COUNT(*) AS n FROM votes WHERE story_id = ?) x WHERE x.n > 0", 1, 99),
    with_values("SELECT author, COUNT(*) FROM stories WHERE author = ? GROUP BY author", 1, 2, 99),
    with_values("SELECT author, COUNT(*) FROM stories WHERE author IN (?, ?) GROUP BY author", (1, 2), (3, 99)),
    with_values("SELECT author, COUNT(*) FROM stories WHERE author > ? GROUP BY author", 1, 3),
    with_values("SELECT author, COUNT(*) FROM stories WHERE score = ? GROUP BY author", 1, 2, 3),
    with_values("SELECT author, COUNT(*) n FROM stories GROUP BY author HAVING n > ?", 0, 1, 2),
    with_values("SELECT author, COUNT(*) n FROM stories GROUP BY author HAVING author = ?", 1, 2),
    with_values("SELECT DISTINCT title FROM stories WHERE author = ?", 1, 2, 3),
    with_values("SELECT DISTINCT author FROM stories WHERE author > ?", 1, 2, 3),
    with_values("SELECT DISTINCT title FROM stories WHERE author = ? ORDER BY title LIMIT 1", 1, 2, 3),
    with_values("SELECT id FROM stories WHERE author = ? ORDER BY score DESC, id LIMIT 1", 1, 2, 3),
    with_values("SELECT id FROM stories WHERE author IN (?, ?) ORDER BY score DESC, id LIMIT 2", (1, 2), (3, 4)),
    with_values("SELECT id FROM stories ORDER BY score, id LIMIT ?", 0, 2, 50),
    with_values("SELECT id FROM stories ORDER BY score, id LIMIT ? OFFSET ?", (2, 1), (3, 5)),
    with_values("SELECT id FROM stories WHERE author = ? ORDER BY id LIMIT 2 OFFSET ?", (1, 1), (2, 0)),
    with_values("SELECT s.id, u.name FROM stories s JOIN users u ON u.id = s.author WHERE u.name = ?", "apple", "corn", ""),
    with_values("SELECT s.id, u.name FROM stories s JOIN users u ON u.id = s.author AND u.name = ?", "apple", "corn", ""),
    with_values("SELECT s.id, v.user FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ?", 1, 2, 3),
    with_values("SELECT s.id, v.user FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE v.user = ?", 1, 2, 3),
    with_values("SELECT s.id, v.user FROM stories s LEFT JOIN votes v ON v.story_id = s.id AND v.vote > 0 WHERE s.author = ?", 1, 2),
    with_values("SELECT s.id, COUNT(v.user) FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.author = ? GROUP BY s.id", 1, 2),
    with_values("SELECT * FROM StoriesWithVC WHERE id = ?", 1, 2, 3, 4),
    with_values("SELECT x.id FROM (SELECT id, author FROM stories WHERE score = ?) x WHERE x.author = ?", (1, 1), (2, 2)),
    with_values("SELECT id FROM stories WHERE author IN (SELECT id FROM users WHERE name = ?)", "apple", "corn"),
    with_values("SELECT id FROM stories WHERE author IN (SELECT boss FROM users WHERE karma >= 1) AND score = ?", 1, 2),
    with_values("SELECT id FROM stories WHERE EXISTS (SELECT 1 FROM users WHERE name = ?)", "apple", "nobody"),
    with_values("SELECT id FROM stories WHERE author = (SELECT MAX(boss) FROM users WHERE name = ?)", "apple", "corn"),
    with_values("SELECT id FROM stories WHERE score > (SELECT MAX(vote) FROM votes WHERE user = ?)", 1, 2),
    with_values("SELECT id FROM stories WHERE author = ? AND id NOT IN (SELECT story_id FROM votes WHERE story_id IS NOT NULL)", 1, 2, 3),
    with_values("SELECT id, title FROM stories WHERE id = ? UNION ALL SELECT id, name FROM users WHERE id = ?", (1, 1), (3, 3)),
    with_values("SELECT title FROM stories WHERE id = ? UNION SELECT name FROM users WHERE id = ?", (1, 1), (3, 3)),
    with_values("SELECT title FROM stories WHERE author = :who UNION ALL SELECT name FROM users WHERE boss = :who", (1, 1), (2, 2), sqlite="SELECT title FROM stories WHERE author = ? UNION ALL SELECT name FROM users WHERE boss = ?"),
    with_values("SELECT a.id, b.id FROM stories a JOIN users b ON a.author = :x AND b.boss = :x", (1, 1), (2, 2), sqlite="SELECT a.id, b.id FROM stories a JOIN users b ON a.author = ? AND b.boss = ?"),
    with_values("SELECT a.id FROM stories a, stories b WHERE a.id = ? AND b.id = ? AND a.author = b.author", (1, 2), (3, 4), (5, 5)),
    with_values("SELECT id FROM stories WHERE (author, score) = (?, ?)", (1, 2), (2, 3)),
    with_values("SELECT id FROM stories WHERE author + 1 = ?", 2, 3),
    with_values("WITH x AS (SELECT id, author FROM stories WHERE score > ?) SELECT id FROM x WHERE author = ?", (0, 1), (1, 2)),
    with_values("SELECT x.id FROM (SELECT id FROM stories WHERE author = ? ORDER BY score DESC, id LIMIT 1) x", 1, 2, 3),
    with_values("SELECT tag, SUM(weight) FROM tags JOIN stories s ON s.id = tags.story_id WHERE s.author = ? GROUP BY tag ORDER BY 2 DESC, 1 LIMIT 1", 1, 2),
    with_values("SELECT u.id, (SELECT COUNT(*) FROM votes) FROM users u WHERE u.id = ?", 1, 9),
    with_values("SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM votes WHERE user = ? GROUP BY story_id) x", 1, 2, 99),
)


def lines(text: str) -> list[Case]:
    return [Case(line) for line in text.strip().splitlines()]
