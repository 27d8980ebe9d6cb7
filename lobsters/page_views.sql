-- The pages as answers: one view shows all that a page shows of a thing, with what belongs to it in arrays, and what
-- depends on the user who reads is asked beside it. A page's look-ups are one request:
--
--   every page     reader_by_id, keystore_value
--   Frontpage      frontpage_ids, story_in_list (of all), marks_of_reader      (Recent: the same from recent_ids)
--   Story          story_page, marks_of_reader (of the story)
--   Comments       newest_comment_ids, comment_in_list (of all), marks_of_reader (of their stories)
--   User           user_page
--   Comment        story_page, comment_by_name, marks_of_reader
--   CommentVote    comment_by_name, marks_of_reader
--   StoryVote      story_page, marks_of_reader
--   Submit         tags_by_name, stories_by_url, story_page
--   Login          user_by_name
--
-- The three lists of ids are the natural program's, word for word, and full: a ranking sees all stories. What is shown
-- of the 51 that it names is a row for each, partial, so that a vote makes one of them anew, and not the list.

-- Views ---------------------------------------------------------------------------------------------------------

-- All that a user has done to a story and its comments, reading it included. Partial by the user, as the natural
-- program's are: they are few, and the first page of a user is one hole. When a story was read last is not shown, so that
-- the one write of a Story page changes no answer from its second time on.
CREATE VIEW marks AS
SELECT user_id, story_id, 'vote' AS mark, id, comment_id, vote, reason FROM votes
UNION ALL
SELECT user_id, story_id, 'hidden' AS mark, id, NULL AS comment_id, NULL AS vote, NULL AS reason FROM hidden_stories
UNION ALL
SELECT user_id, story_id, 'saved' AS mark, id, NULL AS comment_id, NULL AS vote, NULL AS reason FROM saved_stories
UNION ALL
SELECT user_id, story_id, 'read' AS mark, id, NULL AS comment_id, NULL AS vote, NULL AS reason FROM read_ribbons;

-- Queries ----------------------------------------------------------------------------------------------------------

-- Every page: who reads, and the number beside the name that an application writes.
CREATE EXT VIEW reader_by_id AS
SELECT u.id, u.username, u.email, u.created_at, u.is_admin, u.is_moderator, u.about, u.banned_at, u.deleted_at,
       n.notifications,
       (SELECT JSON_ARRAYAGG(f.tag_id ORDER BY f.tag_id) FROM tag_filters f WHERE f.user_id = u.id) AS filtered
FROM users u
LEFT JOIN notifications n ON n.user_id = u.id
WHERE u.id = ?;

CREATE EXT VIEW keystore_value AS
SELECT `key`, `value` FROM keystores WHERE `key` = ?;

CREATE EXT VIEW marks_of_reader AS
SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id, mark, id, comment_id, vote, reason
FROM marks
WHERE user_id = ? AND story_id IN (?);

-- Frontpage, Recent ---------------------------------------------------------------------------------------------

CREATE EXT VIEW frontpage_ids AS
SELECT story_id, hotness FROM hottest_stories ORDER BY hotness, story_id;

CREATE EXT VIEW recent_ids AS
SELECT story_id, created_at FROM newest_stories ORDER BY created_at DESC, story_id DESC;

CREATE EXT VIEW story_in_list AS
SELECT s.id, s.short_id, s.created_at, s.url, s.title, s.user_is_author, s.upvotes, s.downvotes, s.score,
       s.comments_count, u.username,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('id', t.id, 'tag', t.tag, 'is_media', t.is_media) ORDER BY t.id)
        FROM taggings g JOIN tags t ON t.id = g.tag_id WHERE g.story_id = s.id) AS tags,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('user_id', n.user_id, 'title', n.title) ORDER BY n.id)
        FROM suggested_titles n WHERE n.story_id = s.id) AS suggested_titles,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('user_id', n.user_id, 'tag_id', n.tag_id) ORDER BY n.id)
        FROM suggested_taggings n WHERE n.story_id = s.id) AS suggested_tags
FROM story_summary s
JOIN users u ON u.id = s.user_id
WHERE s.merged_story_id IS NULL AND s.is_expired = 0 AND s.score >= 0 AND s.id IN (?);

-- Story ---------------------------------------------------------------------------------------------------------

CREATE EXT VIEW story_page AS
SELECT s.id, s.short_id, s.created_at, s.user_id, s.url, s.title, s.markeddown_description, s.is_expired,
       s.is_moderated, s.merged_story_id, s.user_is_author, s.upvotes, s.downvotes, s.score, s.comments_count,
       u.username,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('id', t.id, 'tag', t.tag, 'description', t.description,
                                         'is_media', t.is_media) ORDER BY t.id)
        FROM taggings g JOIN tags t ON t.id = g.tag_id WHERE g.story_id = s.id) AS tags,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('id', m.id, 'short_id', m.short_id, 'title', m.title, 'url', m.url,
                                         'user_id', m.user_id) ORDER BY m.id)
        FROM stories m WHERE m.merged_story_id = s.id) AS merged,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('id', c.id, 'short_id', c.short_id, 'created_at', c.created_at,
                                         'user_id', c.user_id, 'username', a.username,
                                         'parent_comment_id', c.parent_comment_id, 'thread_id', c.thread_id,
                                         'markeddown_comment', c.markeddown_comment, 'is_deleted', c.is_deleted,
                                         'is_moderated', c.is_moderated, 'hat_id', c.hat_id, 'upvotes', c.upvotes,
                                         'downvotes', c.downvotes, 'score', c.score) ORDER BY c.score DESC, c.id)
        FROM comment_with_votes c JOIN users a ON a.id = c.user_id WHERE c.story_id = s.id) AS comments
FROM story_summary s
JOIN users u ON u.id = s.user_id
WHERE s.short_id = ?;

-- Comments ------------------------------------------------------------------------------------------------------

CREATE EXT VIEW newest_comment_ids AS
SELECT comment_id, created_at FROM newest_comments ORDER BY created_at DESC, comment_id DESC;

CREATE EXT VIEW comment_in_list AS
SELECT c.id, c.short_id, c.created_at, c.user_id, a.username, c.markeddown_comment, c.upvotes, c.downvotes, c.score,
       c.story_id, s.short_id AS story_short_id, s.title, s.upvotes AS story_upvotes, s.downvotes AS story_downvotes,
       s.score AS story_score, u.username AS author
FROM comment_with_votes c
JOIN users a ON a.id = c.user_id
JOIN story_with_votes s ON s.id = c.story_id
JOIN users u ON u.id = s.user_id
WHERE c.id IN (?);

-- User ----------------------------------------------------------------------------------------------------------

CREATE EXT VIEW user_page AS
SELECT u.id, u.username, u.email, u.created_at, u.is_admin, u.is_moderator, u.about, u.invited_by_user_id,
       s.stories_count, s.comments_count, s.karma,
       (SELECT JSON_OBJECT('id', t.id, 'tag', t.tag, 'uses', p.uses)
        FROM tags_per_user p JOIN tags t ON t.id = p.tag_id WHERE p.user_id = u.id
        ORDER BY p.uses DESC, p.tag_id LIMIT 1) AS favourite_tag,
       (SELECT JSON_ARRAYAGG(JSON_OBJECT('hat', h.hat, 'link', h.link, 'granted_by_user_id', h.granted_by_user_id)
                             ORDER BY h.id)
        FROM hats h WHERE h.doffed_at IS NULL AND h.user_id = u.id) AS hats
FROM users u
JOIN user_stats s ON s.user_id = u.id
WHERE u.username = ?;

CREATE EXT VIEW user_by_name AS
SELECT id, username, email, password_digest, created_at, is_admin, is_moderator, about, invited_by_user_id
FROM users
WHERE username = ?;

-- Comment, CommentVote, StoryVote, Submit -----------------------------------------------------------------------

CREATE EXT VIEW comment_by_name AS
SELECT c.id, c.short_id, c.story_id, c.user_id, u.username, c.thread_id, c.upvotes, c.downvotes, c.score
FROM comment_with_votes c
JOIN users u ON u.id = c.user_id
WHERE c.short_id = ?;

CREATE EXT VIEW tags_by_name AS
SELECT tag, id, privileged, inactive FROM tags WHERE tag IN (?);

CREATE EXT VIEW stories_by_url AS
SELECT url, id, short_id, created_at FROM stories WHERE is_expired = 0 AND url = ?;
