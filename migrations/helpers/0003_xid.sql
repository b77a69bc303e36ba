-- A column that holds the transaction which last wrote a row, for polling without loss by an index:
-- SELECT add_xid_column('orders');

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ${schema}.stamp_xid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW := jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[0], pg_current_xact_id()::text));
  RETURN NEW;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ${schema}.add_xid_column(target regclass, col name DEFAULT 'tx') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  keys text;
BEGIN
  EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I xid8 NOT NULL DEFAULT pg_current_xact_id()', target, col);
  SELECT string_agg(format(', %I', a.attname), '' ORDER BY k.n) INTO keys
  FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n), pg_attribute a
  WHERE i.indrelid = target AND i.indisprimary AND a.attrelid = target AND a.attnum = k.attnum;
  EXECUTE format('CREATE INDEX ON %s (%I%s)', target, col, coalesce(keys, ''));
  EXECUTE format('CREATE TRIGGER stamp_xid BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION ${schema}.stamp_xid(%L)',
    target, col);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION ${schema}.add_xid_column(regclass, name);
DROP FUNCTION ${schema}.stamp_xid() CASCADE;
