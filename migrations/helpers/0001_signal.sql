-- Signals to a change data capture source: whoever inserts a row tells it to do something, such as to read a table anew.

-- +goose Up
CREATE TABLE IF NOT EXISTS ${schema}.signal (
  id varchar(42) PRIMARY KEY,
  type varchar(32) NOT NULL,
  data varchar(2048)
);

-- +goose Down
DROP TABLE ${schema}.signal;
