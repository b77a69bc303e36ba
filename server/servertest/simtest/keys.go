package simtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/servertest/history"
)

// keysTopic is compacted all the while.
const keysTopic = "keys"

func keysPartition() history.Partition { return history.Partition{Topic: keysTopic} }

// readsLast says whether readers get the last value. A leader that hears nothing of the others does not know when it
// leads no longer, and shows what it has: where something is cut off or slow that may be an earlier one.
func (s *sim) readsLast() bool {
	for _, k := range s.plan.kinds {
		if slices.Contains(staleKinds(), k.name) {
			return false
		}
	}
	return true
}

// staleKinds are the faults under which a leader may not know that it is none any more.
func staleKinds() []string {
	return []string{
		"pause", "isolate", "one-way", "bridge", "swizzle", "slow-network", "slow-disk", "stall", "half-open", "reset",
	}
}

// keeper writes values of keys and reads the last ones (W2): by key, or all of the topic. Beside the keys that
// everybody writes to it has one of its own at a time, which it deletes in the end for good.
type keeper struct {
	*client
	seq   int
	lives int
	own   int
	kept  bool // the own key has a value
}

func (k *keeper) run() {
	k.begin()
	for k.think() {
		switch k.rng.IntN(8) {
		case 0:
			k.scan()
		case 1:
			if k.kept {
				k.delete()
			} else {
				k.own++
				k.kept = k.put(k.ownKey()) == history.OK
			}
		case 2:
			k.get(k.ownKey())
		case 3, 4:
			k.get(k.anyKey())
		default:
			k.put(k.anyKey())
		}
	}
}

// begin begins a session, with a producer of its own.
func (k *keeper) begin() {
	k.lives++
	k.seq = 0
}

func (k *keeper) session() string { return fmt.Sprintf("%s/%d", k.name, k.lives) }

func (k *keeper) anyKey() string { return fmt.Sprint("k", k.rng.IntN(4)) }

func (k *keeper) ownKey() string { return fmt.Sprintf("%s-own-%d", k.name, k.own) }

func (k *keeper) op(kind history.Kind, key, value string) *history.Op {
	return &history.Op{
		Kind: kind, Client: k.name, Session: k.session(), API: "native", Invoke: k.s.h.Now(), Partition: keysPartition(),
		Key: key, Values: []string{value}, Base: -1,
	}
}

// put writes a value, again and again until that is done.
func (k *keeper) put(key string) history.Outcome {
	o := k.op(history.Put, key, fmt.Sprintf("%s/%d", k.session(), k.seq))
	body := fmt.Sprintf(`[{"key_text":%q,"value":%q}]`, key, o.Values[0])
	for range 20 {
		q := request{
			node: k.node(), method: "POST", body: body, path: "/v1/topics/" + keysTopic + "/records?partition=0",
			header: map[string]string{
				"Content-Type": "application/vnd.millrace.records+json",
				"Producer-Id":  k.session(), "Producer-Seq": strconv.Itoa(k.seq),
			},
		}
		k.disturb(q)
		r := k.do(k.ctx, q)
		if outcome, note := nativeOutcome(&r); outcome == history.OK {
			o.Outcome = outcome
			var answer struct {
				Offsets []struct {
					Base *int64 `json:"base_offset"`
				}
			}
			if err := json.Unmarshal(r.body, &answer); err == nil && len(answer.Offsets) == 1 && answer.Offsets[0].Base != nil {
				o.Base = *answer.Offsets[0].Base
			}
			break
		} else if o.Note = note; r.status == http.StatusConflict || r.status == http.StatusForbidden || !k.think() {
			break
		}
	}
	o.Return = k.s.h.Now()
	k.s.h.Add(o)
	if k.seq++; o.Outcome != history.OK {
		k.begin()
	}
	return o.Outcome
}

// gone is what the history has as the value of a key that was deleted for good.
func gone(key string) string { return "no " + key }

// delete deletes the keeper's own key, whose next is another one.
func (k *keeper) delete() {
	o := k.op(history.Put, k.ownKey(), gone(k.ownKey()))
	r := k.do(k.ctx, request{node: k.node(), method: "DELETE", path: "/v1/topics/" + keysTopic + "/keys/" + k.ownKey()})
	o.Outcome, o.Note = nativeOutcome(&r)
	o.Return = k.s.h.Now()
	k.s.h.Add(o)
	for o.Outcome == history.OK && k.rng.IntN(2) == 0 && k.think() {
		k.get(k.ownKey())
	}
	k.kept = false
	k.own++
}

// get reads the value of a key. That there is none says something of the keys only that were written to and deleted by
// one keeper.
func (k *keeper) get(key string) {
	o := k.op(history.Get, key, "")
	q := request{
		node: k.node(), method: "GET", path: "/v1/topics/" + keysTopic + "/keys/" + key,
		header: map[string]string{"Accept": "application/json"},
	}
	r := k.do(k.ctx, q)
	if o.Node, o.Return = q.node.name, k.s.h.Now(); !k.s.readsLast() {
		o.Invoke = 0
	}
	switch {
	case r.err == nil && r.status == http.StatusOK:
		var e entry
		if err := json.Unmarshal(r.body, &e); err != nil || json.Unmarshal(e.Value, &o.Values[0]) != nil {
			k.s.violate("API", "%s: value of %s: %v in %.200s", q.node.name, key, err, r.body)
			return
		}
		o.Offsets = []int64{e.Offset}
	case r.err == nil && r.status == http.StatusNotFound && key == k.ownKey() && !k.kept:
		return // perhaps it was never there
	case r.err == nil && r.status == http.StatusNotFound && key == k.ownKey():
		o.Values[0] = gone(key)
	case r.err == nil && r.status == http.StatusNotFound:
	default:
		return
	}
	o.Outcome = history.OK
	k.s.h.Add(o)
}

// scan reads the topic from its start to its end. Pages end at the high watermark, which one who has just become the
// leader may know late: what they lack was there nonetheless, so that a scan tells of some time before it ended.
func (k *keeper) scan() {
	n := k.node()
	last := map[string]entry{}
	var keys []string
	for next := int64(0); ; {
		r := k.do(k.ctx, request{
			node: n, method: "GET", header: map[string]string{"Accept": "application/json"},
			path: fmt.Sprintf("/v1/topics/%s/partitions/0/records?max_records=50&offset=%d", keysTopic, next),
		})
		var page struct{ Records []entry }
		if r.err != nil || r.status != http.StatusOK || json.Unmarshal(r.body, &page) != nil {
			return
		}
		for _, e := range page.Records {
			if e.KeyText == nil || e.Offset < next {
				k.s.violate("D6", "%s: %+v comes at %d", n.name, e, next)
				return
			}
			if _, known := last[*e.KeyText]; !known {
				keys = append(keys, *e.KeyText)
			}
			last[*e.KeyText], next = e, e.Offset+1
		}
		if len(page.Records) == 0 {
			break
		}
	}
	for _, key := range keys {
		o := k.op(history.Get, key, "")
		o.Invoke, o.Return, o.Node, o.Outcome = 0, k.s.h.Now(), n.name, history.OK
		o.Offsets = []int64{last[key].Offset}
		if json.Unmarshal(last[key].Value, &o.Values[0]) != nil || o.Values[0] == "" {
			o.Values[0] = gone(key) // it is a tombstone
		}
		k.s.h.Add(o)
	}
}

// compareKeys compares logs that each replica compacts for itself: as far as all have them, they have the same last
// record of every key (D9). A tombstone may be gone.
func (s *sim) compareKeys(folder string) {
	type last struct {
		offset int64
		value  []byte
	}
	var (
		names []string
		all   []map[string]last
		end   int64
	)
	for _, m := range s.nodes {
		l, err := m.readLog(folder)
		switch {
		case m.isRotten(folder): // nobody has read it since
			continue
		case err != nil:
			s.violate("D9", "%s: log of %s: %v", m.name, folder, err)
			return
		case l == nil:
			continue
		}
		state := map[string]last{}
		for _, r := range l.decided() {
			state[string(r.Key)] = last{r.Offset, r.Value}
		}
		if len(all) > 0 && l.end() != end {
			return // something was written when not all were up any more
		}
		end = l.end()
		names, all = append(names, m.name), append(all, state)
	}
	for i := range all {
		for j := range all {
			for key, r := range all[i] {
				other, there := all[j][key]
				switch {
				case !there && r.value == nil:
				case !there || other.offset != r.offset || !bytes.Equal(other.value, r.value):
					s.violate("D9", "%s: the last record of key %q is at %d at %s (%.60q), at %d at %s (%t, %.60q)", folder, key,
						r.offset, names[i], r.value, other.offset, names[j], there, other.value)
					return
				}
			}
		}
	}
	if folder != keysTopic+"-0" || len(all) == 0 {
		return
	}
	for _, o := range s.h.Ops() {
		if o.Kind != history.Put || o.Outcome != history.OK || o.Values[0] == gone(o.Key) {
			continue
		}
		r, there := all[0][o.Key]
		if there && r.offset < o.Base || !there && !s.wasDeleted(o.Key) {
			s.violate("D9", "the last record of %s is at %d (%t), after %s", o.Key, r.offset, there, o)
			return
		}
	}
}

// wasDeleted says whether somebody asked to delete a key.
func (s *sim) wasDeleted(key string) bool {
	return slices.ContainsFunc(s.h.Ops(), func(o *history.Op) bool {
		return o.Kind == history.Put && o.Key == key && o.Values[0] == gone(key) && o.Outcome != history.Fail
	})
}

// decided are the records of a log that are committed, in the order in which they became so. Their bytes are the log's.
func (l *diskLog) decided() (out []record.Record) {
	open := map[int64][]record.Record{}
	for _, b := range l.batches {
		if m, ok := b.EndTxnMarker(); ok {
			if m.Type == record.ControlCommit {
				out = append(out, open[b.ProducerID()]...)
			}
			delete(open, b.ProducerID())
			continue
		}
		r := record.NewReader(b, 1<<20)
		var rec record.Record
		for r.Next(&rec) {
			kept := record.Record{Offset: rec.Offset, Key: rec.Key, Value: rec.Value}
			if b.IsTransactional() {
				open[b.ProducerID()] = append(open[b.ProducerID()], kept)
			} else {
				out = append(out, kept)
			}
		}
	}
	return out
}

// compacted are the folders of the logs that are compacted.
func (s *sim) compacted() (folders []string) {
	if s.plan.registry != nil {
		return []string{schemasTopic + "-0"}
	}
	if s.plan.exact == nil {
		return nil
	}
	for _, name := range []string{metadata.GroupTopic, metadata.TxnTopic} {
		for number := range internalPartitions {
			folders = append(folders, fmt.Sprintf("%s-%d", name, number))
		}
	}
	return append(folders, keysTopic+"-0")
}

// internalPartitions is how many partitions the coordinators' topics have.
const internalPartitions = 2
