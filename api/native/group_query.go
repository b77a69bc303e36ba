package native

import (
	"net/url"
	"strings"
	"time"

	"millrace/client"
	members "millrace/consumer"
)

// Bounds and defaults of reads by members.
const (
	defaultWorkWait    = 5 * time.Second
	defaultWorkSession = 45 * time.Second
)

// workQuery is what the query of a read by a member asks for, checked and with its defaults.
type workQuery struct {
	readQuery
	config   members.Config
	seen     int64 // the delivery that the client has
	saysSeen bool
	given    map[string]bool
}

// parseWorkQuery reads a raw query.
func parseWorkQuery(raw string, stream bool) (*workQuery, error) {
	q := &workQuery{
		readQuery: readQuery{
			maxRecords: defaultMaxRecords, maxBytes: defaultMaxBytes, isolation: client.ReadCommitted, wait: defaultWorkWait,
		},
		config: members.Config{AutoCommit: true, PinStart: true, Lease: defaultWorkSession},
		given:  map[string]bool{},
	}
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, err := queryPair(pair)
		if err != nil {
			return nil, err
		}
		if q.given[name] {
			return nil, badQuery("parameter %.40q is given twice", name)
		}
		q.given[name] = true
		if err := q.setWork(name, value); err != nil {
			return nil, err
		}
	}
	if stream && (q.limited || q.sized || q.given["wait"] || q.saysSeen) {
		return nil, badQuery("max_records, max_bytes, wait and ack are for answers that end; a stream of events goes on")
	}
	q.config.Isolation, q.config.Rack = q.isolation, q.rack
	return q, nil
}

// setWork takes one parameter in.
func (q *workQuery) setWork(name, value string) error {
	switch name {
	case "topics":
		return q.setTopics(value)
	case "pattern":
		if value == "" || len(value) > members.MaxPattern {
			return badQuery("parameter pattern has 1 to %d bytes", members.MaxPattern)
		}
		q.config.Pattern = value
	case "member":
		if value == "" || len(value) > members.MaxID {
			return badQuery("parameter member has 1 to %d bytes", members.MaxID)
		}
		q.config.ID = value
	case "auto_offset_reset":
		return q.setReset(value)
	case "commit":
		if value != "auto" && value != "manual" {
			return badQuery("parameter commit=%.40q: want auto or manual", value)
		}
		q.config.AutoCommit = value == "auto"
	case "session":
		d, err := parseWait(value)
		if err != nil || d < members.MinLease || d > members.MaxLease {
			return badQuery("parameter session=%.40q: want a duration such as 45s, or seconds, from %v to %v", value,
				members.MinLease, members.MaxLease)
		}
		q.config.Lease = d
	case "ack":
		n, err := parseAck(value)
		if err != nil {
			return err
		}
		q.seen, q.saysSeen = n, true
	case "max_records", "max_bytes", "wait", "isolation", "rack", "format", "key_format":
		return q.set(name, value)
	default:
		return badQuery("unknown parameter %.40q; a read by a group takes topics, pattern, member, ack, auto_offset_reset, "+
			"commit, session, max_records, max_bytes, wait, isolation, rack, format and key_format", name)
	}
	return nil
}

// parseAck reads the number of a delivery.
func parseAck(value string) (int64, error) {
	n, err := parseDecimal(value)
	if err != nil {
		return 0, badQuery("parameter ack=%.40q: want the delivery of the last answer that arrived, or 0", value)
	}
	return n, nil
}

func (q *workQuery) setTopics(value string) error {
	topics := strings.Split(value, ",")
	if len(topics) > members.MaxTopics {
		return badQuery("parameter topics names %d topics, the limit is %d", len(topics), members.MaxTopics)
	}
	for _, t := range topics {
		if err := client.CheckTopicName(t); err != nil {
			return err
		}
	}
	q.config.Topics = topics
	return nil
}

func (q *workQuery) setReset(value string) error {
	switch value {
	case "latest":
		q.config.Reset = members.Latest
	case "earliest":
		q.config.Reset = members.Earliest
	case "none":
		q.config.Reset = members.None
	default:
		return badQuery("parameter auto_offset_reset=%.40q: want latest, earliest or none", value)
	}
	return nil
}

func escapeQuery(s string) string { return url.QueryEscape(s) }
