package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/connect/postgres"
)

// identityColumns are those of a table's replica identity, where that is a key.
func identityColumns(t *postgres.Table) []string {
	byIndex := t.ReplicaIdentity == 'i'
	for _, x := range t.Unique {
		if x.Immediate && (byIndex && x.ReplicaIdentity || !byIndex && x.Primary) {
			return x.Columns
		}
	}
	return nil
}

// keyColumns are the columns that message.key.columns has for a table; nil if it has none.
func (s *settings) keyColumns(t tableName) []string {
	for _, r := range s.keys {
		if r.table.MatchString(t.String()) {
			return r.columns
		}
	}
	return nil
}

// checkKeys refuses keys that the stream would not tell.
func (n *session) checkKeys(ctx context.Context) error {
	if len(n.s.keys) == 0 {
		return nil
	}
	now, err := loadPublication(ctx, n.sql, n.s.publication)
	if err != nil || !now.updates && !now.deletes {
		return err
	}
	for name := range n.tables {
		if err := n.keyFault(ctx, name); err != nil {
			return fmt.Errorf("message.key.columns: %w", err)
		}
	}
	return nil
}

// keyFault is what is wrong with the key that message.key.columns has for a table. Of a row that is deleted, or that
// moves to another key, the server sends the columns of the replica identity alone: a key with others would be the key
// of no record.
func (n *session) keyFault(ctx context.Context, name tableName) error {
	columns := n.s.keyColumns(name)
	if columns == nil || !n.s.filter.table(name) {
		return nil
	}
	t, err := postgres.LoadTable(ctx, n.sql, name.Schema, name.Name)
	if err != nil || t == nil {
		return postgres.Explain(err, "read the catalog of table "+name.String())
	}
	n.s.plannedIdentity(t)
	identity := identityColumns(t)
	var unknown []string
	for _, c := range columns {
		if t.Column(c) == nil {
			return fmt.Errorf("table %s has no column %s", name, c)
		}
		if !slices.Contains(identity, c) {
			unknown = append(unknown, c)
		}
	}
	whole := t.ReplicaIdentity == 'f' || t.ReplicaIdentity == 'n' // of the latter, there are no updates and deletions
	if len(unknown) == 0 || whole || !n.s.snapshot.streaming || n.s.skip["u"] && n.s.skip["d"] {
		return nil
	}
	return fmt.Errorf("table %s: %s of the key is not in the table's replica identity, so that the server does not tell "+
		"whose row is deleted, or which key a row had before. Run: ALTER TABLE %s REPLICA IDENTITY FULL; or, where a unique "+
		"index of NOT NULL columns has all of the key, ALTER TABLE %s REPLICA IDENTITY USING INDEX its name", name,
		strings.Join(unknown, ", "), name.SQL(), name.SQL())
}

// plannedIdentity gives a table the replica identity that replica.identity.autoset.values has for it.
func (s *settings) plannedIdentity(t *postgres.Table) {
	for _, e := range s.List("replica.identity.autoset.values") {
		i := strings.LastIndexByte(e, ':')
		tables, err := compile([]string{e[:max(i, 0)]})
		if i < 0 || err != nil || !matches(tables, t.String()) {
			continue
		}
		if _, letter, err := identitySQL(e[i+1:]); err == nil {
			t.ReplicaIdentity = letter[0]
		}
		_, index, _ := strings.Cut(strings.TrimSpace(e[i+1:]), " ")
		for j := range t.Unique {
			t.Unique[j].ReplicaIdentity = t.Unique[j].Name == strings.TrimSpace(index)
		}
	}
}

// errKey says that a change does not tell the key of its event. It is of a time when the table had another replica
// identity than message.key.columns takes.
var errKey = errors.New("it is of the key by message.key.columns, and was not in the table's replica identity when " +
	"the row was changed, so that the key is not known: ALTER TABLE ... REPLICA IDENTITY FULL helps from then on; " +
	"changes of before are passed over with event.processing.failure.handling.mode=warn, and a snapshot by signal " +
	"brings the rows")

// keyKnown says whether an update or a deletion tells the key that its row had.
func keyKnown(k *table, m *message, at lsn) error {
	if m.oldKind == 'O' || k.identity != 'd' && k.identity != 'i' {
		return nil
	}
	for i := range k.key {
		if !k.wire[k.key[i].at].Key {
			return &rowFault{k.name, k.key[i].name, at, errKey}
		}
	}
	return nil
}
