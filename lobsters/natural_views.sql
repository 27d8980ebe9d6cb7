-- The natural program: what Lobsters keeps in counters by hand, Headrace derives from the votes themselves.
--
--   votes ──► votes_per_story ───► story_with_votes ──► story_summary           (a story with its numbers)
--     ├─────► votes_per_comment ─► comment_with_votes
--     │              └──────────────────────────────────┐
--     │           comments ──► tails ─► followed_tails ─┴─► replying_comments ──► notifications
--     └─────► merged_score, non_author_comments ─┐
--                                   tag_hotness ─┴─► story_points ──► story_hotness ──► hottest_stories
--
-- Rules that keep the views partial: what a page looks up by is a plain column down to a base table, and what is
-- joined again is cut to the columns that are needed there.

-- Votes ---------------------------------------------------------------------------------------------------------

CREATE VIEW votes_per_story AS
SELECT story_id,
       SUM(CASE WHEN vote = 1 THEN 1 ELSE 0 END) AS upvotes,
       SUM(CASE WHEN vote = -1 THEN 1 ELSE 0 END) AS downvotes
FROM votes
WHERE comment_id IS NULL
GROUP BY story_id;

CREATE VIEW votes_per_comment AS
SELECT comment_id,
       SUM(CASE WHEN vote = 1 THEN 1 ELSE 0 END) AS upvotes,
       SUM(CASE WHEN vote = -1 THEN 1 ELSE 0 END) AS downvotes
FROM votes
WHERE comment_id IS NOT NULL
GROUP BY comment_id;

CREATE VIEW story_with_votes AS
SELECT s.id, s.short_id, s.created_at, s.user_id, s.url, s.title, s.markeddown_description, s.is_expired,
       s.is_moderated, s.merged_story_id, s.user_is_author,
       COALESCE(v.upvotes, 0) AS upvotes,
       COALESCE(v.downvotes, 0) AS downvotes,
       COALESCE(v.upvotes, 0) - COALESCE(v.downvotes, 0) AS score
FROM stories s
LEFT JOIN votes_per_story v ON v.story_id = s.id;

CREATE VIEW comment_with_votes AS
SELECT c.id, c.short_id, c.created_at, c.updated_at, c.story_id, c.user_id, c.parent_comment_id, c.thread_id,
       c.markeddown_comment, c.is_deleted, c.is_moderated, c.is_from_email, c.hat_id,
       COALESCE(v.upvotes, 0) AS upvotes,
       COALESCE(v.downvotes, 0) AS downvotes,
       COALESCE(v.upvotes, 0) - COALESCE(v.downvotes, 0) AS score
FROM comments c
LEFT JOIN votes_per_comment v ON v.comment_id = c.id;

CREATE VIEW comments_per_story AS
SELECT story_id, COUNT(*) AS comments_count
FROM comments
WHERE is_deleted = 0
GROUP BY story_id;

CREATE VIEW story_summary AS
SELECT s.*, COALESCE(c.comments_count, 0) AS comments_count
FROM story_with_votes s
LEFT JOIN comments_per_story c ON c.story_id = s.id;

-- Hotness -------------------------------------------------------------------------------------------------------
--
-- The front page needs all stories' hotness, so that what this is summed from is kept in full. Therefore it is summed
-- once, by story, out of the votes as they are: no sums of sums, and of single comments only those by a story's author.

CREATE VIEW tag_hotness AS
SELECT taggings.story_id, tags.hotness_mod AS base
FROM taggings
JOIN tags ON tags.id = taggings.tag_id;

-- What has been merged into a story counts for it.
CREATE VIEW merged_score AS
SELECT s.merged_story_id AS story_id, v.vote AS score
FROM stories s
JOIN votes v ON v.story_id = s.id
WHERE s.merged_story_id IS NOT NULL AND v.comment_id IS NULL;

CREATE VIEW author_comments AS
SELECT c.id AS comment_id, c.story_id
FROM stories s
JOIN comments c ON c.story_id = s.id AND c.user_id = s.user_id;

-- A story's author does not heat it up by commenting: his comments' votes are among all, and taken off again.
CREATE VIEW non_author_comments AS
SELECT story_id, vote AS points FROM votes WHERE comment_id IS NOT NULL
UNION ALL
SELECT a.story_id, 0 - v.vote AS points
FROM author_comments a
JOIN votes v ON v.comment_id = a.comment_id;

CREATE VIEW hotness_parts AS
SELECT story_id, 0 AS base, vote AS score, 0 AS points FROM votes WHERE comment_id IS NULL
UNION ALL
SELECT story_id, 0 AS base, score, 0 AS points FROM merged_score
UNION ALL
SELECT story_id, 0 AS base, 0 AS score, points FROM non_author_comments
UNION ALL
SELECT story_id, base, 0 AS score, 0 AS points FROM tag_hotness;

CREATE VIEW story_points AS
SELECT story_id, SUM(base) AS base, SUM(score) AS score, SUM(points) AS points
FROM hotness_parts
GROUP BY story_id;

-- Ten times the points make up for 22 hours of age. That is 7.92E4 seconds, as a DOUBLE, because dividing by an integer
-- keeps four digits after the point. The least number is the hottest story: the front page reads in ascending order.
CREATE VIEW story_hotness AS
SELECT s.id AS story_id, s.merged_story_id, s.is_expired,
       ROUND(-1 * (COALESCE(p.base, 0)
                   + LOG10(GREATEST(ABS(COALESCE(p.score, 0) + 1) + COALESCE(p.points, 0), 1))
                     * SIGN(COALESCE(p.score, 0))
                   + UNIX_TIMESTAMP(s.created_at) / 7.92E4), 7) AS hotness
FROM stories s
LEFT JOIN story_points p ON p.story_id = s.id;

CREATE VIEW hottest_stories AS
SELECT story_id, hotness
FROM story_hotness
WHERE merged_story_id IS NULL AND is_expired = 0
ORDER BY hotness, story_id
LIMIT 51;

CREATE VIEW newest_stories AS
SELECT id AS story_id, created_at
FROM stories
WHERE merged_story_id IS NULL AND is_expired = 0
ORDER BY created_at DESC, id DESC
LIMIT 51;

CREATE VIEW newest_comments AS
SELECT id AS comment_id, created_at
FROM comments
WHERE is_deleted = 0 AND is_moderated = 0
ORDER BY created_at DESC, id DESC
LIMIT 40;

-- Users ---------------------------------------------------------------------------------------------------------

CREATE VIEW stories_per_user AS
SELECT user_id, COUNT(*) AS stories_count FROM stories GROUP BY user_id;

CREATE VIEW comments_per_user AS
SELECT user_id, COUNT(*) AS comments_count FROM comments GROUP BY user_id;

-- What others (and the user) think of all that the user has written: one sum a user, and none for each thing written.
CREATE VIEW user_karma AS
SELECT written.user_id, SUM(written.vote) AS karma
FROM (
  SELECT s.user_id, v.vote FROM stories s JOIN votes v ON v.story_id = s.id WHERE v.comment_id IS NULL
  UNION ALL
  SELECT c.user_id, v.vote FROM comments c JOIN votes v ON v.comment_id = c.id
) AS written
GROUP BY written.user_id;

CREATE VIEW user_stats AS
SELECT u.id AS user_id, u.username,
       COALESCE(s.stories_count, 0) AS stories_count,
       COALESCE(c.comments_count, 0) AS comments_count,
       COALESCE(k.karma, 0) AS karma
FROM users u
LEFT JOIN stories_per_user s ON s.user_id = u.id
LEFT JOIN comments_per_user c ON c.user_id = u.id
LEFT JOIN user_karma k ON k.user_id = u.id;

CREATE VIEW tags_per_user AS
SELECT s.user_id, t.tag_id, COUNT(*) AS uses
FROM taggings t
JOIN stories s ON s.id = t.story_id
GROUP BY s.user_id, t.tag_id;

-- Replies -------------------------------------------------------------------------------------------------------

-- Heads can be replied to, tails are the replies of others: each comment goes to its parent, or to the story if it has
-- none. Out of the base tables alone, which are looked up without keeping anything: whether a comment is well received
-- is asked last, of the few that a user has not read.
CREATE VIEW tails AS
SELECT s.user_id AS head_user_id, s.id AS story_id, c.parent_comment_id AS head_comment_id, c.id AS comment_id,
       c.user_id, c.created_at
FROM stories s
JOIN comments c ON c.story_id = s.id
WHERE s.is_expired = 0 AND c.parent_comment_id IS NULL AND c.user_id <> s.user_id
  AND c.is_deleted = 0 AND c.is_moderated = 0
UNION ALL
SELECT h.user_id AS head_user_id, h.story_id, c.parent_comment_id AS head_comment_id, c.id AS comment_id,
       c.user_id, c.created_at
FROM comments h
JOIN comments c ON c.parent_comment_id = h.id
WHERE h.is_deleted = 0 AND h.is_moderated = 0 AND c.user_id <> h.user_id
  AND c.is_deleted = 0 AND c.is_moderated = 0;

-- Replies to what a user wrote, in stories that the user follows. The tails stand first, and a look-up by user begins
-- there: there are fewer replies to a user than stories that he has read.
CREATE VIEW followed_tails AS
SELECT r.user_id, r.story_id, t.head_comment_id, t.comment_id, t.user_id AS comment_user_id, t.created_at,
       t.created_at > r.updated_at AS is_unread
FROM tails t
JOIN read_ribbons r ON r.story_id = t.story_id AND r.user_id = t.head_user_id
WHERE r.is_following = 1;

CREATE VIEW replying_comments AS
SELECT t.user_id, t.story_id, t.comment_id, t.comment_user_id, t.created_at, t.is_unread
FROM followed_tails t
LEFT JOIN votes_per_comment v ON v.comment_id = t.comment_id
LEFT JOIN votes_per_comment h ON h.comment_id = t.head_comment_id
WHERE COALESCE(v.upvotes, 0) >= COALESCE(v.downvotes, 0) AND COALESCE(h.upvotes, 0) >= COALESCE(h.downvotes, 0);

CREATE VIEW notifications AS
SELECT user_id, COUNT(*) AS notifications
FROM replying_comments
WHERE is_unread = 1
GROUP BY user_id;
