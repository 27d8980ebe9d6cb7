-- The base tables of Lobsters as of 2018: the columns that the pages' queries use, with keys and indexes.
--
-- Nothing here is a counter: votes, scores, karma and hotness are views (natural_views.sql). users.karma is the one
-- exception, kept because the site's schema has it; the natural program neither writes nor reads it.
-- tags.hotness_mod is DECIMAL and not FLOAT so that sums of it do not depend on the order of the writes.
-- votes is indexed by what the views look it up by: the voter with the story or comment, the story, the comment.

CREATE TABLE users (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  username VARCHAR(50) NOT NULL,
  email VARCHAR(100),
  password_digest VARCHAR(75),
  created_at DATETIME NOT NULL,
  is_admin BOOL NOT NULL DEFAULT 0,
  is_moderator BOOL NOT NULL DEFAULT 0,
  session_token VARCHAR(75),
  about TEXT,
  invited_by_user_id INT,
  karma INT NOT NULL DEFAULT 0,
  banned_at DATETIME,
  deleted_at DATETIME,
  UNIQUE KEY username (username),
  KEY session_token (session_token)
);

CREATE TABLE tags (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  tag VARCHAR(25) NOT NULL,
  description VARCHAR(100),
  privileged BOOL NOT NULL DEFAULT 0,
  is_media BOOL NOT NULL DEFAULT 0,
  inactive BOOL NOT NULL DEFAULT 0,
  hotness_mod DECIMAL(4, 2) NOT NULL DEFAULT 0,
  UNIQUE KEY tag (tag)
);

CREATE TABLE stories (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  user_id INT NOT NULL,
  url VARCHAR(250) NOT NULL DEFAULT '',
  title VARCHAR(150) NOT NULL,
  description TEXT,
  short_id VARCHAR(6) NOT NULL,
  is_expired BOOL NOT NULL DEFAULT 0,
  is_moderated BOOL NOT NULL DEFAULT 0,
  markeddown_description TEXT,
  story_cache TEXT,
  merged_story_id INT,
  unavailable_at DATETIME,
  twitter_id VARCHAR(20),
  user_is_author BOOL NOT NULL DEFAULT 0,
  UNIQUE KEY short_id (short_id),
  KEY user_id (user_id),
  KEY merged_story_id (merged_story_id),
  KEY url (url)
);

CREATE TABLE taggings (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  story_id INT NOT NULL,
  tag_id INT NOT NULL,
  UNIQUE KEY story_id_tag_id (story_id, tag_id),
  KEY story_id (story_id),
  KEY tag_id (tag_id)
);

CREATE TABLE comments (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  updated_at DATETIME,
  short_id VARCHAR(10) NOT NULL,
  story_id INT NOT NULL,
  user_id INT NOT NULL,
  parent_comment_id INT,
  thread_id INT,
  comment TEXT NOT NULL,
  markeddown_comment TEXT,
  is_deleted BOOL NOT NULL DEFAULT 0,
  is_moderated BOOL NOT NULL DEFAULT 0,
  is_from_email BOOL NOT NULL DEFAULT 0,
  hat_id INT,
  UNIQUE KEY short_id (short_id),
  KEY story_id (story_id),
  KEY story_id_user_id (story_id, user_id),
  KEY user_id (user_id),
  KEY parent_comment_id (parent_comment_id)
);

-- A vote on a story has no comment_id; a vote on a comment also has the comment's story_id.
-- vote is 1 (up), -1 (down, with a reason) or 0 (taken back).
CREATE TABLE votes (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT NOT NULL,
  story_id INT NOT NULL,
  comment_id INT,
  vote TINYINT NOT NULL,
  reason VARCHAR(1),
  KEY user_id_story_id (user_id, story_id),
  KEY user_id_comment_id (user_id, comment_id),
  KEY story_id (story_id),
  KEY comment_id (comment_id)
);

CREATE TABLE tag_filters (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  user_id INT NOT NULL,
  tag_id INT NOT NULL,
  UNIQUE KEY user_id_tag_id (user_id, tag_id),
  KEY user_id (user_id)
);

-- When a user has last read a story's comments. The unique key lets a page write it with ON DUPLICATE KEY UPDATE.
CREATE TABLE read_ribbons (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  is_following BOOL NOT NULL DEFAULT 1,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  user_id INT NOT NULL,
  story_id INT NOT NULL,
  UNIQUE KEY user_id_story_id (user_id, story_id),
  KEY user_id (user_id),
  KEY story_id (story_id)
);

CREATE TABLE hidden_stories (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT NOT NULL,
  story_id INT NOT NULL,
  UNIQUE KEY user_id_story_id (user_id, story_id)
);

CREATE TABLE saved_stories (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  user_id INT NOT NULL,
  story_id INT NOT NULL,
  UNIQUE KEY user_id_story_id (user_id, story_id)
);

CREATE TABLE hats (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME,
  updated_at DATETIME,
  user_id INT NOT NULL,
  granted_by_user_id INT,
  hat VARCHAR(255) NOT NULL,
  link VARCHAR(255),
  modlog_use BOOL NOT NULL DEFAULT 0,
  doffed_at DATETIME,
  KEY user_id (user_id)
);

CREATE TABLE keystores (
  `key` VARCHAR(50) NOT NULL PRIMARY KEY,
  `value` BIGINT
);

CREATE TABLE suggested_taggings (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  story_id INT NOT NULL,
  tag_id INT NOT NULL,
  user_id INT NOT NULL,
  KEY story_id (story_id)
);

CREATE TABLE suggested_titles (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  story_id INT NOT NULL,
  user_id INT NOT NULL,
  title VARCHAR(150) NOT NULL,
  KEY story_id (story_id)
);

CREATE TABLE invitations (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT NOT NULL,
  email VARCHAR(255),
  code VARCHAR(255),
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  memo TEXT
);

CREATE TABLE invitation_requests (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  code VARCHAR(255),
  is_verified BOOL NOT NULL DEFAULT 0,
  email VARCHAR(255),
  name VARCHAR(255),
  memo TEXT,
  ip_address VARCHAR(255),
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL
);

CREATE TABLE hat_requests (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  user_id INT NOT NULL,
  hat VARCHAR(255),
  link VARCHAR(255),
  comment TEXT
);

CREATE TABLE messages (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  author_user_id INT NOT NULL,
  recipient_user_id INT NOT NULL,
  has_been_read BOOL NOT NULL DEFAULT 0,
  subject VARCHAR(100),
  body TEXT,
  short_id VARCHAR(30) NOT NULL,
  deleted_by_author BOOL NOT NULL DEFAULT 0,
  deleted_by_recipient BOOL NOT NULL DEFAULT 0,
  UNIQUE KEY short_id (short_id),
  KEY recipient_user_id (recipient_user_id)
);

CREATE TABLE moderations (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  moderator_user_id INT,
  story_id INT,
  comment_id INT,
  user_id INT,
  action TEXT,
  reason TEXT,
  is_from_suggestions BOOL NOT NULL DEFAULT 0
);
