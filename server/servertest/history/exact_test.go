package history_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/history"
)

// play makes a history of groups and transactions, and what is there at its end.
type play struct {
	script
	facts history.Facts
}

var list = history.Partition{Topic: "list"}

// txn is a transaction whose only record is acknowledged at an offset of the list, and stored there.
func (p *play) txn(out history.Outcome, id string, commit bool, offset int64, value string) *history.Op {
	o := p.add(&history.Op{
		Kind: history.Txn, Session: id, Outcome: out, Partition: list,
		Txn: &history.Transaction{ID: id, Epoch: int16(len(p.ops)), Commit: commit},
	})
	o.Txn.Decide = o.Invoke + time.Millisecond
	o.Txn.Sends = []history.Sent{{Partition: list, Value: value, Offset: offset}}
	p.store(list, offset, value, commit && out != history.Fail)
	return o
}

func (p *play) store(at history.Partition, offset int64, value string, committed bool) {
	if p.facts.Logs == nil {
		p.facts.Logs = map[history.Partition][]history.Stored{}
	}
	p.facts.Logs[at] = append(p.facts.Logs[at], history.Stored{Offset: offset, Value: value, Committed: committed})
}

// poll is one of the list, by a reader or for a group.
func (p *play) poll(session string, from int64, values ...string) *history.Op {
	o := p.read(session, from, values...)
	o.Kind, o.Partition = history.Poll, list
	return o
}

// told is an assignment of the list.
func (p *play) told(protocol, session string, epoch int32, has ...history.Partition) *history.Op {
	return p.add(&history.Op{
		Kind: history.Assign, Outcome: history.OK, Session: session,
		Group: &history.Membership{Group: "g", Member: session, Protocol: protocol, Epoch: epoch, Assigned: has},
	})
}

// commit is one of an offset of the list.
func (p *play) commit(
	out history.Outcome, protocol, session string, epoch int32, offset int64, token string,
) *history.Op {
	return p.add(&history.Op{
		Kind: history.Commit, Outcome: out, Session: session, Partition: list,
		Group: &history.Membership{
			Group: "g", Member: session, Protocol: protocol, Epoch: epoch, Offset: offset, Token: token,
		},
	})
}

// committed is a look at the committed offset of the list.
func (p *play) committed(protocol string, offset int64, token string) *history.Op {
	return p.add(&history.Op{
		Kind: history.Committed, Outcome: history.OK, Partition: list,
		Group: &history.Membership{Group: "g", Protocol: protocol, Offset: offset, Token: token},
	})
}

func (p *play) put(out history.Outcome, value string) *history.Op {
	return p.add(&history.Op{Kind: history.Put, Outcome: out, Key: "k", Values: []string{value}})
}

func (p *play) get(value string) *history.Op {
	return p.add(&history.Op{Kind: history.Get, Outcome: history.OK, Key: "k", Values: []string{value}})
}

const (
	classic, consumer, worker = history.Classic, history.Consumer, history.Worker
	ok, info, fail            = history.OK, history.Info, history.Fail
)

func TestGoodExactHistories(t *testing.T) {
	plays := goodPlays()
	maps.Copy(plays, goodGroups())
	for name, play := range plays {
		t.Run(name, func(t *testing.T) {
			p := newPlay()
			play(p)
			require.Empty(t, history.CheckExact(p.ops, p.facts))
		})
	}
}

func newPlay() *play {
	return &play{facts: history.Facts{Offsets: map[string]map[history.Partition]int64{}, Copies: map[string]string{}}}
}

func goodPlays() map[string]func(p *play) {
	return map[string]func(p *play){
		"nothing": func(*play) {},
		"committed, aborted, unknown": func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.txn(ok, "a", false, 2, "2")
			p.txn(info, "a", true, 4, "3")
			p.txn(fail, "a", true, 6, "4")
			p.poll("r", 0, "1")
			o := p.poll("r", 1, "3")
			o.Offsets = []int64{4}
			p.poll("f", 4, "3").Final = true
		},
		"a poll while the transaction is being decided": func(p *play) {
			o := p.txn(ok, "a", true, 0, "1")
			q := p.poll("r", 0, "1")
			o.Txn.Decide, o.Return = q.Invoke, q.Return+1
		},
		"a value twice, of which one is aborted": func(p *play) {
			p.txn(ok, "a", true, 4, "1").Txn.Again = true
			p.facts.Logs[list] = append([]history.Stored{{Offset: 0, Value: "1"}}, p.facts.Logs[list]...)
		},
		"writers that cross": func(p *play) {
			other := history.Partition{Topic: "list", Number: 1}
			a, b := p.txn(ok, "a", true, 0, "1"), p.txn(ok, "b", true, 1, "2")
			a.Txn.Sends = append(a.Txn.Sends, history.Sent{Partition: other, Value: "3", Offset: 1})
			b.Txn.Sends = append(b.Txn.Sends, history.Sent{Partition: other, Value: "4", Offset: 0})
			p.store(other, 0, "4", true)
			p.store(other, 1, "3", true)
		},
	}
}

func goodGroups() map[string]func(p *play) {
	return map[string]func(p *play){
		"copied once": func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.facts.Copies["list"] = "copies"
			p.copyOf("1", "x", true)
			p.copyOf("1", "y", false)
		},
		"members in turn": func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.told(consumer, "m", 1, list)
			p.told(consumer, "m", 2, list)
			p.group("m", 0, "1")
			p.commit(ok, consumer, "m", 2, 1, "t1")
			p.told(consumer, "m", 3)
			p.told(consumer, "n", 3, list)
			p.commit(fail, consumer, "m", 2, 1, "t2")
			p.committed(consumer, 1, "t1")
			p.facts.Offsets["g"] = map[history.Partition]int64{list: 1}
		},
		"generations": func(p *play) {
			p.told(classic, "m", 1, list)
			p.commit(ok, classic, "m", 1, 1, "t1")
			p.told(classic, "n", 2, list)
			p.commit(fail, classic, "m", 1, 2, "t2")
			p.commit(info, classic, "n", 2, 2, "t3")
			p.committed(classic, 1, "t1")
			p.committed(classic, 2, "t3")
		},
		"offsets of a transaction, some time after it is decided": func(p *play) {
			txn := p.txn(ok, "a", true, 0, "1")
			c := p.commit(ok, classic, "m", 1, 1, "t1")
			c.Group.Txn = txn
			txn.Txn.Decide = c.Return
			p.committed(classic, -1, "")
			p.committed(classic, 1, "t1")
		},
		"a value of a key": func(p *play) {
			p.get("")
			p.put(ok, "1")
			p.put(info, "2")
			p.get("1")
			p.get("2")
			p.put(fail, "3")
			p.put(ok, "4")
			p.get("4")
		},
	}
}

func (p *play) copyOf(value, by string, committed bool) *history.Op {
	to := history.Partition{Topic: "copies"}
	copied := history.CopyOf(value, by)
	at := int64(len(p.facts.Logs[to]))
	o := p.add(&history.Op{
		Kind: history.Txn, Outcome: ok, Txn: &history.Transaction{ID: by, Epoch: int16(len(p.ops)), Commit: committed},
	})
	o.Txn.Decide, o.Txn.Sends = o.Invoke, []history.Sent{{Partition: to, Value: copied, Offset: at}}
	p.store(to, at, copied, committed)
	return o
}

func (p *play) group(session string, from int64, values ...string) {
	o := p.poll(session, from, values...)
	o.Group = &history.Membership{Group: "g", Member: session, Protocol: consumer}
}

// badPlay is a history and the invariant that it breaks.
type badPlay struct {
	invariant string
	play      func(p *play)
}

func badTransactions() map[string]badPlay {
	return map[string]badPlay{
		"a value from nowhere": {"D4", func(p *play) { p.store(list, 0, "1", true) }},
		"a value twice, by tries": {"I1", func(p *play) {
			p.txn(ok, "a", true, 0, "1").Txn.Again = true
			p.store(list, 5, "1", false)
			p.store(list, 7, "1", true)
		}},
		"a value twice": {"I1", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.store(list, 5, "1", true)
		}},
		"acknowledged and gone": {"D1", func(p *play) {
			p.txn(ok, "a", false, 0, "1")
			p.facts.Logs[list] = nil
		}},
		"elsewhere than acknowledged": {"D6", func(p *play) { p.txn(ok, "a", true, 0, "1").Txn.Sends[0].Offset = 3 }},
		"half of it": {"T1", func(p *play) {
			o := p.txn(info, "a", true, 0, "1")
			o.Txn.Sends = append(o.Txn.Sends, history.Sent{Partition: list, Value: "2", Offset: -1})
		}},
		"committed and not there": {"T4", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.facts.Logs[list][0].Committed = false
		}},
		"aborted and there": {"T4", func(p *play) {
			p.txn(ok, "a", false, 0, "1")
			p.facts.Logs[list][0].Committed = true
		}},
		"committed though nobody asked": {"T4", func(p *play) { p.txn(info, "a", true, 0, "1").Txn.Decide = 0 }},
		"an aborted value is read": {"T2", func(p *play) {
			p.txn(ok, "a", false, 0, "1")
			p.poll("r", 0, "1")
		}},
		"an open value is read": {"T2", func(p *play) {
			p.poll("r", 0, "1")
			p.txn(ok, "a", true, 0, "1")
		}},
		"another value is read": {"H3", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.txn(ok, "a", true, 1, "2")
			p.poll("r", 0, "2")
		}},
	}
}

func badReads() map[string]badPlay {
	return map[string]badPlay{
		"one epoch for two": {"T4", func(p *play) {
			a, b := p.txn(ok, "a", true, 0, "1"), p.txn(ok, "a", true, 1, "2")
			b.Txn.Epoch = a.Txn.Epoch
		}},
		"a replaced producer commits": {"T3", func(p *play) {
			a := p.txn(ok, "a", true, 0, "1")
			i := p.add(&history.Op{
				Kind: history.Init, Outcome: ok, Txn: &history.Transaction{ID: "a", Epoch: a.Txn.Epoch + 1},
			})
			a.Txn.Decide, a.Return = i.Return+1, i.Return+2
		}},
		"a value is skipped": {"G5", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.txn(ok, "a", true, 1, "2")
			p.poll("r", 0)
			p.poll("r", 1, "2").From = 0
		}},
		"a value is read again": {"G5", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.poll("r", 0, "1")
			p.poll("r", 0, "1")
		}},
		"a committed value is missing in the end": {"D1", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.poll("f", 0).Final = true
		}},
		"two read each other": {"G1c", func(p *play) {
			a, b := p.txn(ok, "a", true, 0, "1"), p.txn(ok, "b", true, 1, "2")
			a.Txn.Reads = []history.Sent{{Partition: list, Value: "2", Offset: 1}}
			b.Txn.Reads = []history.Sent{{Partition: list, Value: "1", Offset: 0}}
		}},
		"a later transaction writes first": {"G0", func(p *play) {
			p.txn(ok, "a", true, 1, "1")
			p.txn(ok, "a", true, 0, "2")
			p.facts.Logs[list][0], p.facts.Logs[list][1] = p.facts.Logs[list][1], p.facts.Logs[list][0]
		}},
		"copied twice": {"T7", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.facts.Copies["list"] = "copies"
			p.copyOf("1", "x", true)
			p.copyOf("1", "y", true)
		}},
		"not copied": {"T7", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.facts.Copies["list"] = "copies"
		}},
		"an aborted value is copied": {"T7", func(p *play) {
			p.txn(ok, "a", false, 0, "1")
			p.facts.Copies["list"] = "copies"
			p.copyOf("1", "x", true)
		}},
	}
}

func badGroups() map[string]badPlay {
	return map[string]badPlay{
		"two owners in a generation": {"G1", func(p *play) {
			p.told(classic, "m", 1, list)
			p.told(classic, "n", 1, list)
		}},
		"two owners at a time": {"G1", func(p *play) {
			p.told(consumer, "m", 1, list)
			p.told(consumer, "n", 2, list)
			p.told(consumer, "m", 2, list)
			p.told(consumer, "n", 2, list)
		}},
		"a commit of an old generation": {"G2", func(p *play) {
			p.told(classic, "m", 1, list)
			p.told(classic, "n", 2, list)
			p.commit(ok, classic, "m", 1, 5, "t1")
		}},
		"a commit of an old epoch": {"G2", func(p *play) {
			p.told(consumer, "m", 1, list)
			p.told(consumer, "m", 2, list)
			p.commit(ok, consumer, "m", 1, 5, "t1")
		}},
		"a commit beside the owner": {"G2", func(p *play) {
			p.told(consumer, "m", 1, list)
			p.told(consumer, "n", 2, list)
			p.commit(ok, consumer, "m", 1, 5, "t1")
			p.told(consumer, "n", 2, list)
		}},
	}
}

func badOffsets() map[string]badPlay {
	return map[string]badPlay{
		"a commit is lost": {"G3", func(p *play) {
			p.commit(ok, classic, "m", 1, 1, "t1")
			p.commit(ok, classic, "m", 1, 2, "t2")
			p.committed(classic, 1, "t1")
		}},
		"the first commit is lost": {"G3", func(p *play) {
			p.commit(ok, classic, "m", 1, 1, "t1")
			p.committed(classic, -1, "")
		}},
		"it flips": {"G3", func(p *play) {
			p.commit(info, classic, "m", 1, 1, "t1")
			p.commit(info, classic, "m", 1, 2, "t2")
			p.committed(classic, 2, "t2")
			p.committed(classic, 1, "t1")
			p.committed(classic, 2, "t2")
		}},
		"a refused commit counts": {"G3", func(p *play) {
			p.commit(fail, classic, "m", 1, 1, "t1")
			p.committed(classic, 1, "t1")
		}},
		"the offsets of an aborted transaction count": {"G3", func(p *play) {
			p.commit(ok, classic, "m", 1, 1, "t1").Group.Txn = p.txn(ok, "a", false, 0, "1")
			p.committed(classic, 1, "t1")
		}},
		"the offsets of an open transaction count": {"G3", func(p *play) {
			c := p.commit(ok, classic, "m", 1, 1, "t1")
			p.committed(classic, 1, "t1")
			c.Group.Txn = p.txn(ok, "a", true, 0, "1")
		}},
		"a worker's offset goes back": {"G3", func(p *play) {
			p.committed(worker, 5, "")
			p.committed(worker, 4, "")
		}},
		"nobody was given it": {"G4", func(p *play) {
			p.txn(ok, "a", true, 0, "1")
			p.poll("r", 0, "1")
			p.facts.Offsets["g"] = map[history.Partition]int64{list: 1}
		}},
		"a value of a key comes back": {"D9", func(p *play) {
			p.put(ok, "1")
			p.put(ok, "2")
			p.get("1")
		}},
	}
}

func TestBadExactHistories(t *testing.T) {
	for _, cases := range []map[string]badPlay{badTransactions(), badReads(), badGroups(), badOffsets()} {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				p := newPlay()
				c.play(p)
				found := history.CheckExact(p.ops, p.facts)
				require.NotEmpty(t, found)
				var names []string
				for _, v := range found {
					names = append(names, v.Invariant)
					require.NotEmpty(t, v.String())
				}
				require.Contains(t, names, c.invariant, "%v", found)
			})
		}
	}
}
