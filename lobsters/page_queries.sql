-- What the pages read. A page's queries are listed under its name where they are first needed:
--
--   every page     user_by_id, notifications_of_user, keystore_value
--   Frontpage      frontpage_ids, then listed_stories … saved_of_user    (Recent: the same from recent_ids)
--   Story          story_by_short_id, users_by_id (the author), read_ribbon, merged_stories, story_comments,
--                  users_by_id, comment_votes_on_story, story_votes_of_user, hidden_of_user, saved_of_user,
--                  taggings_of_stories, tags_by_id
--   Comments       newest_comment_ids, comments_by_id, hidden_of_user, users_by_id, stories_by_id,
--                  comment_votes_of_user, users_by_id
--   User           user_by_name, stats_of_user, favourite_tag, tags_by_id, hats_of_user
--   Comment        story_by_short_id, comment_by_short_id, users_by_id, comment_votes_of_user, read_ribbon
--   CommentVote    comment_by_short_id, comment_votes_of_user
--   StoryVote      story_by_short_id, story_votes_of_user
--   Submit         tags_by_name, stories_by_url, story_by_short_id
--   Login          user_by_name
--
-- What is asked of one user's marks and votes is partial by the user (PARTIAL_BY, a comment to other databases): they
-- are few, and the first page of a user is one hole instead of one for each of 51 stories. Not so comment_votes_of_user:
-- few pages ask for it, and all that a user has ever voted for would be kept a second time.

-- Every page ----------------------------------------------------------------------------------------------------

CREATE EXT VIEW user_by_id AS
SELECT id, username, email, created_at, is_admin, is_moderator, about, banned_at, deleted_at
FROM users
WHERE id = ?;

CREATE EXT VIEW notifications_of_user AS
SELECT user_id, notifications FROM notifications WHERE user_id = ?;

CREATE EXT VIEW keystore_value AS
SELECT `key`, `value` FROM keystores WHERE `key` = ?;

-- Frontpage, Recent ---------------------------------------------------------------------------------------------

CREATE EXT VIEW frontpage_ids AS
SELECT story_id, hotness FROM hottest_stories ORDER BY hotness, story_id;

CREATE EXT VIEW recent_ids AS
SELECT story_id, created_at FROM newest_stories ORDER BY created_at DESC, story_id DESC;

CREATE EXT VIEW listed_stories AS
SELECT id, short_id, created_at, user_id, url, title, user_is_author, upvotes, downvotes, score, comments_count
FROM story_summary
WHERE merged_story_id IS NULL AND is_expired = 0 AND score >= 0 AND id IN (?);

CREATE EXT VIEW tag_filters_of_user AS
SELECT user_id, tag_id FROM tag_filters WHERE user_id = ?;

CREATE EXT VIEW taggings_of_stories AS
SELECT story_id, tag_id FROM taggings WHERE story_id IN (?);

CREATE EXT VIEW tags_by_id AS
SELECT id, tag, description, privileged, is_media, inactive, hotness_mod FROM tags WHERE id IN (?);

CREATE EXT VIEW users_by_id AS
SELECT id, username FROM users WHERE id IN (?);

CREATE EXT VIEW suggested_titles_of_stories AS
SELECT story_id, user_id, title FROM suggested_titles WHERE story_id IN (?);

CREATE EXT VIEW suggested_taggings_of_stories AS
SELECT story_id, user_id, tag_id FROM suggested_taggings WHERE story_id IN (?);

CREATE EXT VIEW story_votes_of_user AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id, id, vote, reason
FROM votes
WHERE comment_id IS NULL AND user_id = ? AND story_id IN (?);

CREATE EXT VIEW hidden_of_user AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id
FROM hidden_stories
WHERE user_id = ? AND story_id IN (?);

CREATE EXT VIEW saved_of_user AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id
FROM saved_stories
WHERE user_id = ? AND story_id IN (?);

-- Story ---------------------------------------------------------------------------------------------------------

CREATE EXT VIEW story_by_short_id AS
SELECT * FROM story_summary WHERE short_id = ?;

CREATE EXT VIEW read_ribbon AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id, is_following, updated_at
FROM read_ribbons
WHERE user_id = ? AND story_id = ?;

CREATE EXT VIEW merged_stories AS
SELECT merged_story_id, id, short_id, title, url, user_id FROM stories WHERE merged_story_id = ?;

CREATE EXT VIEW story_comments AS
SELECT story_id, id, short_id, created_at, user_id, parent_comment_id, thread_id, markeddown_comment, is_deleted,
       is_moderated, hat_id, upvotes, downvotes, score
FROM comment_with_votes
WHERE story_id = ?
ORDER BY score DESC, id;

-- One place for all the comments of a page, where comment_votes_of_user would take one for each.
CREATE EXT VIEW comment_votes_on_story AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id, comment_id, vote, reason
FROM votes
WHERE comment_id IS NOT NULL AND user_id = ? AND story_id = ?;

-- Comments ------------------------------------------------------------------------------------------------------

CREATE EXT VIEW newest_comment_ids AS
SELECT comment_id, created_at FROM newest_comments ORDER BY created_at DESC, comment_id DESC;

CREATE EXT VIEW comments_by_id AS
SELECT id, short_id, created_at, story_id, user_id, markeddown_comment, upvotes, downvotes, score
FROM comment_with_votes
WHERE id IN (?);

CREATE EXT VIEW stories_by_id AS
SELECT id, short_id, title, user_id, upvotes, downvotes, score FROM story_with_votes WHERE id IN (?);

CREATE EXT VIEW comment_votes_of_user AS
SELECT user_id, comment_id, id, vote, reason
FROM votes
WHERE comment_id IS NOT NULL AND user_id = ? AND comment_id IN (?);

-- User ----------------------------------------------------------------------------------------------------------

CREATE EXT VIEW user_by_name AS
SELECT id, username, email, password_digest, created_at, is_admin, is_moderator, about, invited_by_user_id
FROM users
WHERE username = ?;

CREATE EXT VIEW stats_of_user AS
SELECT user_id, username, stories_count, comments_count, karma FROM user_stats WHERE user_id = ?;

CREATE EXT VIEW favourite_tag AS
SELECT user_id, tag_id, uses FROM tags_per_user WHERE user_id = ? ORDER BY uses DESC, tag_id LIMIT 1;

CREATE EXT VIEW hats_of_user AS
SELECT user_id, hat, link, granted_by_user_id FROM hats WHERE doffed_at IS NULL AND user_id = ?;

-- Comment, CommentVote, StoryVote, Submit -----------------------------------------------------------------------

CREATE EXT VIEW comment_by_short_id AS
SELECT id, short_id, story_id, user_id, thread_id, upvotes, downvotes, score
FROM comment_with_votes
WHERE short_id = ?;

CREATE EXT VIEW replies_to_user AS
SELECT user_id, story_id, comment_id, comment_user_id, created_at, is_unread
FROM replying_comments
WHERE user_id = ?
ORDER BY created_at DESC, comment_id DESC;

CREATE EXT VIEW tags_by_name AS
SELECT tag, id, privileged, inactive FROM tags WHERE tag IN (?);

CREATE EXT VIEW stories_by_url AS
SELECT url, id, short_id, created_at FROM stories WHERE is_expired = 0 AND url = ?;
