package polling

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// The names in offsets. The first three are Confluent's.
const (
	offInc    = "incrementing"
	offTS     = "timestamp"
	offNanos  = "timestamp_nanos"
	offXID    = "xid"
	offUntil  = "until"
	offKey    = "pk"
	offSystem = "system"
	offFile   = "file"
)

// position is how far a table or query has been read.
type position struct {
	inc *int64 // the greatest number given
	ts  *int64 // in microseconds since 1970: all rows up to then are given; with inc, those up to both

	xid    *uint64  // all rows of transactions below are given
	until  uint64   // with key: what xid is to become
	key    []string // rows of the window from xid to until are given up to this key; nil: none of a window are
	system string   // the server's identity, "" if it is not known
	file   string   // of a table without a key: the files that key is a place in
}

// offset is the position as it is stored, nil if there is nothing to say.
func (p position) offset() map[string]any {
	o := map[string]any{}
	if p.inc != nil {
		o[offInc] = *p.inc
	}
	if p.ts != nil {
		at := time.UnixMicro(*p.ts)
		o[offTS], o[offNanos] = at.UnixMilli(), int64(at.Nanosecond())
	}
	if p.xid == nil && p.key == nil {
		if len(o) == 0 {
			return nil
		}
		return o
	}
	var from uint64
	if p.xid != nil {
		from = *p.xid
	}
	o[offXID] = strconv.FormatUint(from, 10)
	if p.system != "" {
		o[offSystem] = p.system
	}
	if p.key != nil {
		key, _ := json.Marshal(p.key) // strings always can be
		o[offUntil], o[offKey] = strconv.FormatUint(p.until, 10), string(key)
		if p.file != "" {
			o[offFile] = p.file
		}
	}
	return o
}

// positionOf reads a stored offset. Numbers may have become texts or floats on the way.
func positionOf(o map[string]any) (p position, err error) {
	if v, ok := o[offInc]; ok && v != nil {
		n, err := wholeOf(offInc, v)
		if err != nil {
			return p, err
		}
		p.inc = &n
	}
	if v, ok := o[offTS]; ok && v != nil {
		ms, err := wholeOf(offTS, v)
		if err != nil {
			return p, err
		}
		at := time.UnixMilli(ms)
		if v, ok := o[offNanos]; ok && v != nil {
			nanos, err := wholeOf(offNanos, v)
			if err != nil {
				return p, err
			}
			at = time.Unix(at.Unix(), nanos)
		}
		micros := at.UnixMicro()
		p.ts = &micros
	}
	return p, p.readXID(o)
}

func (p *position) readXID(o map[string]any) error {
	v, ok := o[offXID]
	if !ok || v == nil {
		return nil
	}
	from, err := unsignedOf(offXID, v)
	if err != nil {
		return err
	}
	p.xid = &from
	p.system, _ = o[offSystem].(string)
	p.file, _ = o[offFile].(string)
	text, _ := o[offKey].(string)
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &p.key); err != nil {
		return fmt.Errorf("the stored offset's %s is not valid", offKey)
	}
	p.until, err = unsignedOf(offUntil, o[offUntil])
	return err
}

func wholeOf(name string, v any) (int64, error) {
	switch n := v.(type) {
	case int64:
		return n, nil
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n), nil
		}
	case string:
		if i, err := strconv.ParseInt(n, 10, 64); err == nil {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the stored offset's %s is no whole number", name)
}

func unsignedOf(name string, v any) (uint64, error) {
	if s, ok := v.(string); ok {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return n, nil
		}
	}
	n, err := wholeOf(name, v)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the stored offset's %s is no number of a transaction", name)
	}
	return uint64(n), nil
}
