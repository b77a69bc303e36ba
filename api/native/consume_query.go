package native

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/api"
	"millrace/client"
)

// Bounds and defaults of a read.
const (
	defaultMaxRecords = 10_000
	maxMaxRecords     = 10_000
	defaultMaxBytes   = 1 << 20
	maxMaxBytes       = 16 << 20
	maxWait           = 60 * time.Second
	maxRack           = 255 // characters
)

// origin is where a read starts.
type origin struct {
	kind      originKind
	offset    int64    // of originOffset
	timestamp int64    // milliseconds, of originTimestamp
	position  position // of originPosition
}

type originKind uint8

const (
	originUnset originKind = iota // the default of the representation
	originEarliest
	originLatest
	originOffset    // an offset of the one partition read
	originTimestamp // the first record at or after a time
	originPosition  // where an earlier read ended
)

// readQuery is what the query of a read asks for, checked and with its defaults.
type readQuery struct {
	origin     origin
	maxRecords int
	maxBytes   int
	wait       time.Duration
	isolation  client.Isolation
	rack       string // whose replicas are read, where it has some; empty: the leaders
	key, value form
	limited    bool // max_records was given
	sized      bool // max_bytes was given
}

// parseReadQuery reads a raw query. A parameter that is unknown, given twice or out of its bounds is an
// INVALID_PARAMETER that says what would be right.
func parseReadQuery(raw string) (readQuery, error) {
	q := readQuery{
		maxRecords: defaultMaxRecords, maxBytes: defaultMaxBytes, isolation: client.ReadCommitted,
	}
	var memory [16]string
	seen := memory[:0]
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, err := queryPair(pair)
		if err != nil {
			return q, err
		}
		if slices.Contains(seen, name) {
			return q, badQuery("parameter %.40q is given twice", name)
		}
		seen = append(seen, name)
		if err := q.set(name, value); err != nil {
			return q, err
		}
	}
	return q, nil
}

// set takes one parameter in.
func (q *readQuery) set(name, value string) (err error) {
	switch name {
	case "offset":
		return q.setOffset(value)
	case "timestamp":
		return q.setTimestamp(value)
	case "from":
		return q.setFrom(value)
	case "max_records":
		q.limited = true
		q.maxRecords, err = parseBound(name, value, maxMaxRecords)
	case "max_bytes":
		q.sized = true
		q.maxBytes, err = parseBound(name, value, maxMaxBytes)
	case "wait":
		return q.setWait(value)
	case "isolation":
		return q.setIsolation(value)
	case "rack":
		return q.setRack(value)
	case "format":
		q.value, err = parseForm(name, value)
	case "key_format":
		q.key, err = parseForm(name, value)
	default:
		return badQuery("unknown parameter %.40q; a read takes offset, timestamp, from, max_records, max_bytes, "+
			"wait, isolation, rack, format and key_format", name)
	}
	return err
}

func queryPair(pair string) (name, value string, err error) {
	name, value, _ = strings.Cut(pair, "=")
	if name, err = url.QueryUnescape(name); err == nil {
		value, err = url.QueryUnescape(value)
	}
	if err != nil {
		return "", "", api.BadEscape(pair)
	}
	return name, value, nil
}

func badQuery(format string, args ...any) error {
	return api.Refuse(api.InvalidParameter, format, args...)
}

// setOrigin takes where to start, once.
func (q *readQuery) setOrigin(o origin) error {
	if q.origin.kind != originUnset {
		return badQuery("offset, timestamp and from each say where to start: give one of them")
	}
	q.origin = o
	return nil
}

func (q *readQuery) setOffset(v string) error {
	switch v {
	case "earliest":
		return q.setOrigin(origin{kind: originEarliest})
	case "latest":
		return q.setOrigin(origin{kind: originLatest})
	}
	n, err := parseDecimal(v)
	if err != nil {
		return badQuery("parameter offset=%.40q: want earliest, latest or a number from 0", v)
	}
	return q.setOrigin(origin{kind: originOffset, offset: n})
}

func (q *readQuery) setTimestamp(v string) error {
	ms, err := parseTimestamp(v)
	if err != nil {
		return badQuery("parameter timestamp=%.40q: want RFC 3339 such as 2026-01-31T12:00:00Z, or milliseconds since "+
			"1970", v)
	}
	return q.setOrigin(origin{kind: originTimestamp, timestamp: ms})
}

func (q *readQuery) setFrom(v string) error {
	p, err := parsePosition(v)
	if err != nil {
		return badQuery("parameter from=%.40q: %v", v, err)
	}
	return q.setOrigin(origin{kind: originPosition, position: p})
}

func parseBound(name, v string, most int64) (int, error) {
	n, err := parseDecimal(v)
	if err != nil || n < 1 || n > most {
		return 0, badQuery("parameter %s=%.40q: want a number from 1 to %d", name, v, most)
	}
	return int(n), nil
}

func (q *readQuery) setWait(v string) error {
	d, err := parseWait(v)
	if err != nil || d < 0 || d > maxWait {
		return badQuery("parameter wait=%.40q: want a duration such as 500ms or 5s, or seconds, from 0 to %s", v, maxWait)
	}
	q.wait = d
	return nil
}

func (q *readQuery) setIsolation(v string) error {
	switch v {
	case "read_committed":
		q.isolation = client.ReadCommitted
	case "read_uncommitted":
		q.isolation = client.ReadUncommitted
	default:
		return badQuery("parameter isolation=%.40q: want read_committed or read_uncommitted", v)
	}
	return nil
}

func (q *readQuery) setRack(v string) error {
	if v == "" || utf8.RuneCountInString(v) > maxRack {
		return badQuery("parameter rack=%.40q: want the broker.rack of some brokers, 1 to %d characters", v, maxRack)
	}
	q.rack = v
	return nil
}

func parseForm(name, v string) (form, error) {
	switch v {
	case "auto":
		return formAuto, nil
	case "json":
		return formJSON, nil
	case "text":
		return formText, nil
	case "base64":
		return formBase64, nil
	case "avro":
		return formAvro, nil
	case "jsonschema":
		return formJSONSchema, nil
	case "protobuf":
		return formProtobuf, nil
	}
	return formAuto, badQuery("parameter %s=%.40q: want auto, json, text, base64, avro, jsonschema or protobuf", name, v)
}

// parseWait reads a Go duration or a number of seconds.
func parseWait(v string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(v, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > 1e6 {
			return 0, strconv.ErrRange
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	return time.ParseDuration(v)
}

// parseTimestamp reads RFC 3339 or milliseconds since 1970 as the first whole millisecond that is not before it. In a
// query that was not escaped the plus of a zone has become a space: it is taken for the plus it was.
func parseTimestamp(v string) (int64, error) {
	if ms, err := parseDecimal(v); err == nil {
		return ms, nil
	}
	if i := strings.LastIndexByte(v, ' '); i > 10 {
		v = v[:i] + "+" + v[i+1:]
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return 0, err
	}
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return max(ms, 0), nil
}
