package cdc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// signal is a row of the signal table.
type signal struct{ id, kind, data string }

// signalOf reads a signal: its table has the columns id, type and data, or others in that order.
func signalOf(k *table, row *tuple) (s signal) {
	for i, to := range []struct {
		name string
		text *string
	}{{"id", &s.id}, {"type", &s.kind}, {"data", &s.data}} {
		at := slices.IndexFunc(k.wire, func(c wireColumn) bool { return strings.EqualFold(c.Name, to.name) })
		if at < 0 {
			at = i
		}
		if at < len(row.kinds) && row.kinds[at] == valueText {
			*to.text = string(row.texts[at])
		}
	}
	return s
}

// signalData is what a signal says.
type signalData struct {
	Type         string   `json:"type"`
	Collections  []string `json:"data-collections"`
	Condition    string   `json:"additional-condition"`
	SurrogateKey string   `json:"surrogate-key"`
	Conditions   []struct {
		Collection string `json:"data-collection"`
		Filter     string `json:"filter"`
	} `json:"additional-conditions"`
	Message string `json:"message"`
}

// signal does what a signal asks for. One that makes no sense is said so in the log: nobody else would hear of it.
func (t *task) signal(ctx context.Context, s signal) error {
	var d signalData
	if s.data != "" {
		if err := json.Unmarshal([]byte(s.data), &d); err != nil {
			t.logger.Error("a signal's data are not JSON", "signal", s.id, "type", s.kind, "err", err)
			return nil
		}
	}
	state := t.at.state()
	switch strings.ToLower(s.kind) {
	case "execute-snapshot":
		return t.execute(ctx, s, &d)
	case "stop-snapshot":
		return t.stopSnapshot(s, &d)
	case "pause-snapshot":
		state.Paused, t.window = true, nil
	case "resume-snapshot":
		state.Paused = false
	case "log":
		t.logger.Info("signal", "signal", s.id, "message", strings.ReplaceAll(d.Message, "{}", t.at.commit.String()))
		return nil
	case "snapshot-window-open", "snapshot-window-close":
		return nil // marks of another connector
	default:
		t.logger.Error("a signal of a type that is not known", "signal", s.id, "type", s.kind)
		return nil
	}
	t.logger.Info("signal", "signal", s.id, "type", s.kind)
	return nil
}

// named are the captured tables that a signal names by expressions, in order.
func (t *task) named(ctx context.Context, list []string) (out []tableName, err error) {
	patterns, err := compile(list)
	if err != nil {
		return nil, err
	}
	if err := t.session.loadMembers(ctx); err != nil { // there may be new ones
		return nil, err
	}
	for name := range t.session.tables {
		full := name.String()
		if name != t.s.signals && t.s.filter.table(name) && (matches(patterns, full) || slices.Contains(list, full)) {
			out = append(out, name)
		}
	}
	sortTables(out)
	return out, nil
}

func (t *task) execute(ctx context.Context, s signal, d *signalData) error {
	tables, err := t.named(ctx, d.Collections)
	if err != nil {
		if _, e := compile(d.Collections); e != nil {
			t.logger.Error("a signal names no tables", "signal", s.id, "err", err)
			return nil
		}
		return err
	}
	for _, c := range d.Collections {
		p, _ := compile([]string{c}) // it was compiled before
		names := func(n tableName) bool { return n.String() == c || matches(p, n.String()) }
		if !slices.ContainsFunc(tables, names) {
			t.logger.Warn("a signal names what is no captured table", "signal", s.id, "table", c)
		}
	}
	if len(tables) == 0 {
		t.logger.Error("a signal names no captured table", "signal", s.id, "tables", fmt.Sprint(d.Collections))
		return nil
	}
	state := t.at.state()
	if strings.EqualFold(d.Type, "blocking") {
		state.Todo = append(slices.Clone(state.Todo), tables...)
		t.logger.Info("a blocking snapshot is asked for", "signal", s.id, "tables", len(tables))
		return nil
	}
	state.Chunks = slices.Clone(state.Chunks)
	for _, name := range tables {
		if slices.ContainsFunc(state.Chunks, func(c chunkedTable) bool { return c.Table == name }) {
			continue // it is being read, or will be
		}
		c := chunkedTable{Table: name, Signal: s.id, Where: conditionOf(d, name)}
		if d.SurrogateKey != "" {
			c.Key = []string{d.SurrogateKey}
		}
		state.Chunks = append(state.Chunks, c)
	}
	t.logger.Info("an incremental snapshot is asked for", "signal", s.id, "tables", len(tables))
	return nil
}

func conditionOf(d *signalData, name tableName) string {
	for _, c := range d.Conditions {
		p, err := compile([]string{c.Collection})
		if c.Collection == name.String() || err == nil && matches(p, name.String()) {
			return c.Filter
		}
	}
	return d.Condition
}

func (t *task) stopSnapshot(s signal, d *signalData) error {
	patterns, err := compile(d.Collections)
	if err != nil {
		t.logger.Error("a signal names no tables", "signal", s.id, "err", err)
		return nil
	}
	state := t.at.state()
	var keep []chunkedTable
	for _, c := range state.Chunks {
		if len(d.Collections) > 0 && !matches(patterns, c.Table.String()) {
			keep = append(keep, c)
			continue
		}
		t.logger.Info("a snapshot is stopped", "signal", s.id, "table", c.Table.String(), "rows", c.Rows)
		if t.window != nil && t.window.name == c.Table {
			t.window = nil
		}
	}
	state.Chunks = keep
	return nil
}
