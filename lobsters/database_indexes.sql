-- What a database needs beside the schema's own keys, per variant. Headrace needs none of them: a full view's
-- answer is kept, and a partial one is looked up by the keys that the schema declares.

-- natural -------------------------------------------------------------------------------------------------------
-- Covering, so that votes are summed out of an index without the rows.
CREATE INDEX votes_of_story ON votes (story_id, comment_id, vote);
CREATE INDEX votes_of_comment ON votes (comment_id, vote);
CREATE INDEX newest_story ON stories (created_at, id);
CREATE INDEX newest_comment ON comments (created_at, id);
CREATE INDEX uses_of_tag ON taggings (story_id, tag_id);

-- hand-optimised ------------------------------------------------------------------------------------------------
CREATE INDEX hottest ON stories (hotness, id);
CREATE INDEX newest_story ON stories (created_at, id);
CREATE INDEX newest_comment ON comments (created_at, id);
