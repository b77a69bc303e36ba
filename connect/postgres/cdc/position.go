package cdc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// position is where reading is: what is stored as the source offset. Working copies of it move on as messages are read;
// what came of them is stored with it, or none of it is.
type position struct {
	sysid    string
	timeline int
	slot     string
	commit   lsn    // behind the last transaction that is done with: what is committed from here on is not
	txn      lsn    // of a transaction of which a part is done: its commit record; 0: there is none
	seq      int64  // how many changes of that part
	seen     string // a view of the database: whoever is of the publication in it has been noted; "": it is not known
	scope    string // what is captured, as filter.scope writes it; "": it is not known
	snap     *snapshotState
	taken    bool // it is an offset of Debezium's: whose system it is of is not known
}

// snapshotState is how far snapshots are.
type snapshotState struct {
	// Todo are tables that are to be read in whole before streaming begins.
	Todo []tableName `json:"todo,omitempty"`
	// Read are tables that were read, or whose end was found, in views other than the one that the slot begins with: of
	// the stream up to Until, what the view saw is in the rows that are read.
	Read []readTable `json:"read,omitempty"`
	// Again says that what happened before was given away: deletions that a view sees are to be told all the same.
	Again bool `json:"again,omitempty"`
	// Chunks are tables that are read chunk by chunk beside the stream, one after the other.
	Chunks []chunkedTable `json:"chunks,omitempty"`
	Paused bool           `json:"paused,omitempty"`
	// New are tables that have come to be captured, and whose rows from before are to be read.
	New []newTable `json:"new,omitempty"`
	// Rows counts what was read.
	Rows int64 `json:"rows,omitempty"`
}

// newTable is a table that has come to be captured. What transactions below After did to it before, the stream does not
// tell: it is read once these have ended.
type newTable struct {
	Table tableName `json:"table"`
	After uint64    `json:"after"`
}

// readTable is a table that was read in a view.
type readTable struct {
	Table tableName `json:"table"`
	View  string    `json:"view"`
	Until string    `json:"until"`
}

// chunkedTable is a table that is read chunk by chunk.
type chunkedTable struct {
	Table  tableName `json:"table"`
	Signal string    `json:"signal,omitempty"` // what asked for it; "": the initial snapshot
	Where  string    `json:"where,omitempty"`
	Key    []string  `json:"key,omitempty"` // in whose order it is read
	Last   []string  `json:"last,omitempty"`
	Max    []string  `json:"max,omitempty"`
	Rows   int64     `json:"rows,omitempty"`
}

// hide keeps from the stream what a view sees of a table, up to a place behind all that; "": it is the one that the
// slot begins with.
func (s *snapshotState) hide(name tableName, view string, until lsn) {
	if view != "" && !s.Again {
		s.Read = append(s.Read, readTable{name, view, until.String()})
	}
}

func (s *snapshotState) empty() bool {
	return s == nil || len(s.Todo) == 0 && len(s.Read) == 0 && len(s.Chunks) == 0 && len(s.New) == 0 && !s.Paused
}

// state is the state to change.
func (p *position) state() *snapshotState {
	if p.snap == nil {
		p.snap = new(snapshotState)
	}
	return p.snap
}

// offset writes the position as it is stored. Places are text, as the server writes them.
func (p *position) offset() map[string]any {
	o := map[string]any{"sysid": p.sysid, "timeline": int64(p.timeline), "slot": p.slot, "commit_lsn": p.commit.String(),
		"seq": p.seq}
	if p.txn != 0 {
		o["txn_lsn"] = p.txn.String()
	}
	if p.seen != "" {
		o["published"] = p.seen
	}
	if p.scope != "" {
		o["scope"] = p.scope
	}
	if !p.snap.empty() {
		b, err := json.Marshal(p.snap)
		if err != nil {
			panic(err) // it has strings and numbers alone
		}
		o["snapshot"] = string(b)
	}
	return o
}

// parsePosition reads what offset wrote, or an offset of Debezium's.
func parsePosition(o map[string]any) (*position, error) {
	if _, ours := o["commit_lsn"]; !ours {
		return parseDebezium(o)
	}
	p := new(position)
	var err error
	if p.commit, err = placeOf(o, "commit_lsn"); err != nil {
		return nil, err
	}
	if o["txn_lsn"] != nil {
		if p.txn, err = placeOf(o, "txn_lsn"); err != nil {
			return nil, err
		}
	}
	if p.seq, err = numberOf(o, "seq"); err != nil {
		return nil, err
	}
	timeline, err := numberOf(o, "timeline")
	if err != nil {
		return nil, err
	}
	p.timeline = int(timeline)
	p.sysid, p.slot = textOf(o["sysid"]), textOf(o["slot"])
	p.seen, p.scope = textOf(o["published"]), textOf(o["scope"])
	p.taken = p.sysid == ""
	return p, p.readSnapshot(o["snapshot"])
}

func (p *position) readSnapshot(v any) error {
	var text []byte
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		text = []byte(v)
	default:
		var err error
		if text, err = json.Marshal(v); err != nil {
			return err
		}
	}
	p.snap = new(snapshotState)
	if err := json.Unmarshal(text, p.snap); err != nil {
		return fmt.Errorf("offset: snapshot: %w", err)
	}
	return nil
}

// parseDebezium reads an offset that Debezium stored. Nil: its snapshot was not complete, so there is none.
func parseDebezium(o map[string]any) (*position, error) {
	if flag(o["snapshot"]) && !flag(o["last_snapshot_record"]) && !flag(o["snapshot_completed"]) {
		return nil, nil
	}
	key := "lsn_commit"
	if o[key] == nil {
		key = "lsn"
	}
	at, err := placeOf(o, key)
	if err != nil {
		return nil, fmt.Errorf("%w; an offset has commit_lsn, or Debezium's lsn_commit or lsn", err)
	}
	return &position{commit: at, taken: true}, nil
}

// flag reads what Debezium writes for true: the kind of snapshot that is going on, in recent releases.
func flag(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != "" && !strings.EqualFold(v, "false")
	}
	return false
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

func placeOf(o map[string]any, key string) (lsn, error) {
	switch v := o[key].(type) {
	case string:
		at, err := parseLSN(v)
		if err != nil {
			return 0, fmt.Errorf("offset: %s: %w", key, err)
		}
		return at, nil
	}
	n, err := numberOf(o, key)
	if err == nil && o[key] == nil {
		err = fmt.Errorf("offset: there is no %s", key)
	}
	return lsn(n), err
}

func numberOf(o map[string]any, key string) (int64, error) {
	switch v := o[key].(type) {
	case nil:
		return 0, nil
	case int64:
		return v, nil
	case int:
		return int64(v), nil
	case float64:
		return int64(v), nil
	case json.Number:
		return v.Int64()
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("offset: %s is no number", key)
}

// view is what a snapshot sees, as pg_current_snapshot() writes it: xmin:xmax:those in progress.
type view struct {
	xmin, xmax uint64
	running    map[uint64]bool
}

func parseView(s string) (*view, error) {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q is no snapshot", s)
	}
	v := &view{running: map[uint64]bool{}}
	var err error
	if v.xmin, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return nil, err
	}
	if v.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return nil, err
	}
	for _, x := range splitList(parts[2]) {
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			return nil, err
		}
		v.running[n] = true
	}
	return v, nil
}

// sees says whether a transaction, known by the lower half of its number and committed, is in the view. Its number is
// the one nearest to the view's end: half of all numbers are never in use at the same time.
func (v *view) sees(xid uint32) bool {
	full := v.xmax + uint64(int64(int32(xid-uint32(v.xmax))))
	return full < v.xmin || full < v.xmax && !v.running[full]
}
