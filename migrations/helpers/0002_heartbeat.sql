-- Something to change now and then in a database where nothing else does, so that its slot moves on; for servers on
-- which a source may not emit logical messages.

-- +goose Up
CREATE TABLE IF NOT EXISTS ${schema}.heartbeat (
  id int PRIMARY KEY,
  beat timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE ${schema}.heartbeat;
