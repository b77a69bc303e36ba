-- The offset ledger of sinks: which record of a partition comes next, and whose turn it is to write it. A sink changes
-- its row in the transaction that writes the records' effects. Rows are never removed, so that an epoch never returns.

-- +goose Up
CREATE TABLE IF NOT EXISTS ${schema}.sink_offset (
  connector text NOT NULL,
  topic text NOT NULL,
  kpartition int NOT NULL,
  next_offset bigint NOT NULL, -- -1: reset, the consumer group says where to begin
  epoch bigint NOT NULL, -- of the owner; whoever takes the partition raises it
  topic_id uuid, -- a topic of the same name that was made anew has another one
  consumer_group text NOT NULL DEFAULT '',
  owner text NOT NULL DEFAULT '',
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (connector, topic, kpartition)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE ${schema}.sink_offset;
