-- The natural program: what Lobsters keeps in counters by hand, Headrace derives from the votes themselves.
--
--   votes ──► votes_per_story ───► story_with_votes ──► story_summary          (a story with its numbers)
--     │            └──────────────► merged_score ──┐
--     └─────► votes_per_comment ─► comment_points ─┼─► hotness_parts ──► story_hotness ──► hottest_stories
--                  │                  tag_hotness ─┘
--                  └────► comment_with_votes ──► good_comments ──► heads, tails ──► replying_comments ──► notifications
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

CREATE VIEW story_score AS
SELECT story_id, upvotes - downvotes AS score FROM votes_per_story;

CREATE VIEW comment_score AS
SELECT comment_id, upvotes - downvotes AS score FROM votes_per_comment;

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

CREATE VIEW tag_hotness AS
SELECT taggings.story_id, SUM(tags.hotness_mod) AS base
FROM taggings
JOIN tags ON tags.id = taggings.tag_id
GROUP BY taggings.story_id;

-- Points are first summed by story and commenter: what is joined with stories is then one narrow row for each, not
-- every comment.
CREATE VIEW commenter_points AS
SELECT c.story_id, c.user_id, SUM(v.score) AS points
FROM comments c
JOIN comment_score v ON v.comment_id = c.id
GROUP BY c.story_id, c.user_id;

-- A story's author does not heat it up by commenting.
CREATE VIEW non_author_comments AS
SELECT p.story_id, p.user_id, p.points
FROM commenter_points p
JOIN stories s ON s.id = p.story_id
WHERE p.user_id <> s.user_id;

CREATE VIEW comment_points AS
SELECT story_id, SUM(points) AS points
FROM non_author_comments
GROUP BY story_id;

-- What has been merged into a story counts for it.
CREATE VIEW merged_score AS
SELECT s.merged_story_id AS story_id, SUM(v.score) AS score
FROM stories s
JOIN story_score v ON v.story_id = s.id
WHERE s.merged_story_id IS NOT NULL
GROUP BY s.merged_story_id;

CREATE VIEW hotness_parts AS
SELECT story_id, 0 AS base, score, 0 AS points FROM story_score
UNION ALL
SELECT story_id, 0 AS base, score, 0 AS points FROM merged_score
UNION ALL
SELECT story_id, 0 AS base, 0 AS score, points FROM comment_points
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

-- What others (and the user) think of all that the user has written.
CREATE VIEW user_karma AS
SELECT written.user_id, SUM(written.score) AS karma
FROM (
  SELECT s.user_id, v.score FROM stories s JOIN story_score v ON v.story_id = s.id
  UNION ALL
  SELECT c.user_id, v.score FROM comments c JOIN comment_score v ON v.comment_id = c.id
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

CREATE VIEW good_comments AS
SELECT id, story_id, user_id, parent_comment_id, created_at
FROM comment_with_votes
WHERE is_deleted = 0 AND is_moderated = 0 AND score >= 0;

-- Heads can be replied to, tails are the replies: each comment goes to its parent, or to the story if it has none.
CREATE VIEW story_heads AS
SELECT id AS story_id, user_id FROM stories WHERE is_expired = 0;

CREATE VIEW comment_heads AS
SELECT id AS comment_id, story_id, user_id FROM good_comments;

CREATE VIEW tails AS
SELECT h.user_id AS head_user_id, h.story_id, c.id AS comment_id, c.user_id, c.created_at
FROM story_heads h
JOIN good_comments c ON c.story_id = h.story_id
WHERE c.parent_comment_id IS NULL
UNION ALL
SELECT h.user_id AS head_user_id, h.story_id, c.id AS comment_id, c.user_id, c.created_at
FROM comment_heads h
JOIN good_comments c ON c.parent_comment_id = h.comment_id;

-- Replies by others to what a user wrote, in stories that the user follows. The tails stand first, and a look-up by
-- user begins there: there are fewer replies to a user than stories that he has read.
CREATE VIEW replying_comments AS
SELECT r.user_id, r.story_id, t.comment_id, t.user_id AS comment_user_id, t.created_at,
       t.created_at > r.updated_at AS is_unread
FROM tails t
JOIN read_ribbons r ON r.story_id = t.story_id AND r.user_id = t.head_user_id
WHERE r.is_following = 1 AND t.user_id <> r.user_id;

CREATE VIEW notifications AS
SELECT user_id, COUNT(*) AS notifications
FROM replying_comments
WHERE is_unread = 1
GROUP BY user_id;
