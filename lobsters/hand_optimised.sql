-- The hand-optimised variant: the application keeps counters, and the pages read them. Beside schema.sql.
--
-- What is not said here is asked as in page_queries.sql. Who votes, comments or submits pays for the counters: they are
-- read, computed and written by counters.py, in the transaction of the write itself.

-- Counters ------------------------------------------------------------------------------------------------------

ALTER TABLE stories ADD COLUMN upvotes INT NOT NULL DEFAULT 0;
ALTER TABLE stories ADD COLUMN downvotes INT NOT NULL DEFAULT 0;
ALTER TABLE stories ADD COLUMN hotness DOUBLE NOT NULL DEFAULT 0;
ALTER TABLE stories ADD COLUMN comments_count INT NOT NULL DEFAULT 0;
ALTER TABLE comments ADD COLUMN upvotes INT NOT NULL DEFAULT 0;
ALTER TABLE comments ADD COLUMN downvotes INT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN stories_count INT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN comments_count INT NOT NULL DEFAULT 0;

-- Queries -------------------------------------------------------------------------------------------------------

CREATE EXT VIEW frontpage_ids AS
SELECT id AS story_id, hotness FROM stories
WHERE merged_story_id IS NULL AND is_expired = 0
ORDER BY hotness, id LIMIT 51;

CREATE EXT VIEW recent_ids AS
SELECT id AS story_id, created_at FROM stories
WHERE merged_story_id IS NULL AND is_expired = 0
ORDER BY created_at DESC, id DESC LIMIT 51;

CREATE EXT VIEW newest_comment_ids AS
SELECT id AS comment_id, created_at FROM comments
WHERE is_deleted = 0 AND is_moderated = 0
ORDER BY created_at DESC, id DESC LIMIT 40;

CREATE EXT VIEW listed_stories AS
SELECT id, short_id, created_at, user_id, url, title, user_is_author, upvotes, downvotes,
       upvotes - downvotes AS score, comments_count
FROM stories
WHERE merged_story_id IS NULL AND is_expired = 0 AND upvotes >= downvotes AND id IN (?);

CREATE EXT VIEW story_by_short_id AS
SELECT id, short_id, created_at, user_id, url, title, markeddown_description, is_expired, is_moderated,
       merged_story_id, user_is_author, upvotes, downvotes, upvotes - downvotes AS score, comments_count
FROM stories WHERE short_id = ?;

CREATE EXT VIEW story_by_id AS
SELECT id, short_id, created_at, user_id, merged_story_id, upvotes, downvotes FROM stories WHERE id = ?;

CREATE EXT VIEW story_comments AS
SELECT story_id, id, short_id, created_at, user_id, parent_comment_id, thread_id, markeddown_comment, is_deleted,
       is_moderated, hat_id, upvotes, downvotes, upvotes - downvotes AS score
FROM comments
WHERE story_id = ?
ORDER BY score DESC, id;

CREATE EXT VIEW comments_by_id AS
SELECT id, short_id, created_at, story_id, user_id, markeddown_comment, upvotes, downvotes,
       upvotes - downvotes AS score
FROM comments WHERE id IN (?);

CREATE EXT VIEW stories_by_id AS
SELECT id, short_id, title, user_id, upvotes, downvotes, upvotes - downvotes AS score FROM stories WHERE id IN (?);

CREATE EXT VIEW comment_by_short_id AS
SELECT id, short_id, story_id, user_id, thread_id, upvotes, downvotes, upvotes - downvotes AS score
FROM comments WHERE short_id = ?;

CREATE EXT VIEW stats_of_user AS
SELECT id AS user_id, username, stories_count, comments_count, karma FROM users WHERE id = ?;

-- The favourite tag of one user, without the view of everybody's.
CREATE EXT VIEW favourite_tag AS
SELECT s.user_id, t.tag_id, COUNT(*) AS uses
FROM taggings t
JOIN stories s ON s.id = t.story_id
WHERE s.user_id = ?
GROUP BY s.user_id, t.tag_id
ORDER BY uses DESC, tag_id LIMIT 1;

-- Replies that are newer than the ribbon of the story, to the story itself and to one's comments in it. The site asks
-- for this on each page, too: a counter of it would have to be written by whoever writes, once for every follower.
CREATE EXT VIEW notifications_of_user AS
SELECT user_id, COUNT(*) AS notifications
FROM (
  SELECT r.user_id
  FROM read_ribbons r
  JOIN stories s ON s.id = r.story_id AND s.user_id = r.user_id
  JOIN comments c ON c.story_id = r.story_id
  WHERE r.is_following = 1 AND s.is_expired = 0 AND c.parent_comment_id IS NULL AND c.user_id <> r.user_id
    AND c.created_at > r.updated_at AND c.is_deleted = 0 AND c.is_moderated = 0 AND c.upvotes >= c.downvotes
  UNION ALL
  SELECT r.user_id
  FROM read_ribbons r
  JOIN comments p ON p.story_id = r.story_id AND p.user_id = r.user_id
  JOIN comments c ON c.parent_comment_id = p.id
  WHERE r.is_following = 1 AND c.user_id <> r.user_id AND c.created_at > r.updated_at
    AND p.is_deleted = 0 AND p.is_moderated = 0 AND p.upvotes >= p.downvotes
    AND c.is_deleted = 0 AND c.is_moderated = 0 AND c.upvotes >= c.downvotes
) AS unread
WHERE user_id = ?
GROUP BY user_id;

-- What hotness is computed from.
CREATE EXT VIEW tag_hotness_of_story AS
SELECT taggings.story_id, SUM(tags.hotness_mod) AS base
FROM taggings
JOIN tags ON tags.id = taggings.tag_id
WHERE taggings.story_id = ?
GROUP BY taggings.story_id;

CREATE EXT VIEW comment_points_of_story AS
SELECT c.story_id, SUM(c.upvotes - c.downvotes) AS points
FROM comments c
JOIN stories s ON s.id = c.story_id
WHERE c.story_id = ? AND c.user_id <> s.user_id
GROUP BY c.story_id;

CREATE EXT VIEW score_merged_into_story AS
SELECT merged_story_id, SUM(upvotes - downvotes) AS score
FROM stories
WHERE merged_story_id = ?
GROUP BY merged_story_id;
