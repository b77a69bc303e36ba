package history_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/history"
)

var p0 = history.Partition{Topic: "t", Number: 0}

// script makes a history, one operation after the other, each a second long.
type script struct{ ops []*history.Op }

func (s *script) add(o *history.Op) *history.Op {
	o.ID = len(s.ops) + 1
	o.Invoke = time.Duration(o.ID) * time.Second
	o.Return = o.Invoke + time.Second/2
	if o.Partition.Topic == "" {
		o.Partition = p0
	}
	s.ops = append(s.ops, o)
	return o
}

// send is a send by all replicas' acknowledgement.
func (s *script) send(out history.Outcome, session string, base int64, values ...string) *history.Op {
	seq := 0
	for _, o := range s.ops {
		if o.Session == session {
			seq++
		}
	}
	return s.add(&history.Op{
		Kind: history.Send, Session: session, Seq: seq, Outcome: out, Acks: -1, Base: base, Values: values,
	})
}

func (s *script) read(session string, from int64, values ...string) *history.Op {
	o := &history.Op{Kind: history.Read, Session: session, Outcome: history.OK, From: from, Values: values}
	for i := range values {
		o.Offsets = append(o.Offsets, from+int64(i))
	}
	return s.add(o)
}

func (s *script) final(session string, values ...string) { s.read(session, 0, values...).Final = true }

func TestGoodHistories(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"nothing": func(*script) {},
		"plain": func(s *script) {
			s.send(history.OK, "a", 0, "1", "2")
			s.read("r", 0, "1")
			s.send(history.OK, "b", 2, "3")
			s.read("r", 1, "2", "3")
			s.final("f", "1", "2", "3")
			s.final("g", "1", "2", "3")
		},
		"unknown, and there; unknown, and not": func(s *script) {
			s.send(history.Info, "a", -1, "1")
			s.send(history.Info, "b", -1, "2")
			s.final("f", "2")
		},
		"refused": func(s *script) {
			s.send(history.Fail, "a", -1, "1")
			s.final("f")
		},
		"tried again with a sequence": func(s *script) {
			s.send(history.Info, "a", -1, "1").Idempotent = true
			again := s.send(history.OK, "a", 0, "1")
			again.Idempotent, again.Seq = true, 0
			s.send(history.OK, "a", 1, "2").Idempotent = true
			s.final("f", "1", "2")
		},
		"unknown, there twice without a sequence": func(s *script) {
			s.send(history.Info, "a", -1, "1")
			s.final("f", "1", "1")
		},
		"lost by the leader that alone had it": func(s *script) {
			s.send(history.OK, "a", 0, "1").Acks = 1
			s.send(history.OK, "b", 0, "2")
			s.final("f", "2")
		},
		"another life of a topic": func(s *script) {
			s.send(history.OK, "a", 0, "1").Partition.Topic = "t#1"
			s.send(history.OK, "b", 0, "2").Partition.Topic = "t#2"
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s script
			play(&s)
			require.Empty(t, history.Check(s.ops, history.Rules{}))
		})
	}
}

// bad is a history and the invariant it breaks.
type bad struct {
	invariant string
	play      func(s *script)
}

func wrongPlaces() map[string]bad {
	return map[string]bad{
		"a value from nowhere": {"D4", func(s *script) { s.read("r", 0, "1") }},
		"a value of another partition": {"D4", func(s *script) {
			s.send(history.OK, "a", 0, "1").Partition.Number = 7
			s.read("r", 0, "1")
		}},
		"a refused value": {"D3", func(s *script) {
			s.send(history.Fail, "a", -1, "1")
			s.read("r", 0, "1")
		}},
		"two values at one place": {"D5", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.send(history.OK, "b", 0, "2")
		}},
		"a value at two places": {"I1", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.final("f", "1", "1")
		}},
		"a retry stored again": {"I1", func(s *script) {
			s.send(history.Info, "a", -1, "1").Idempotent = true
			o := s.send(history.OK, "a", 1, "1")
			o.Idempotent, o.Seq = true, 0
			s.final("f", "1", "1")
		}},
		"elsewhere than acknowledged": {"D6", func(s *script) {
			s.send(history.OK, "a", 1, "1").Acks = 1
			s.final("f", "1")
		}},
		"later and before": {"D6", func(s *script) {
			s.send(history.OK, "a", 1, "1")
			s.send(history.OK, "b", 0, "2")
			s.final("f", "2", "1")
		}},
	}
}

func wrongLogs() map[string]bad {
	return map[string]bad{
		"a gap": {"D6", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.read("f", 1, "1").Final = true
		}},
		"ends that differ": {"D9", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.final("f", "1")
			s.final("g")
		}},
		"an acknowledged value is gone": {"D1", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.final("f")
		}},
		"an acknowledged value without a place is gone": {"D1", func(s *script) {
			s.send(history.OK, "a", -1, "1")
			s.final("f")
		}},
		"a value that was read is gone": {"H3", func(s *script) {
			s.send(history.Info, "a", -1, "1")
			s.read("r", 0, "1")
			s.final("f")
		}},
		"a reader skips": {"G5", func(s *script) {
			s.send(history.OK, "a", 0, "1", "2", "3")
			s.read("r", 0, "1")
			s.read("r", 2, "3")
		}},
		"a reader sees again": {"G5", func(s *script) {
			s.send(history.OK, "a", 0, "1", "2", "3")
			s.read("r", 0, "1", "2")
			s.read("r", 1, "2")
		}},
		"what was deleted is there": {"D11", func(s *script) {
			s.send(history.OK, "a", 0, "1", "2", "3")
			s.add(&history.Op{Kind: history.Trim, Outcome: history.OK, Base: 2})
			s.add(&history.Op{Kind: history.Trim, Outcome: history.OK, Base: 1})
			s.read("r", 1, "2") // of who does not know that it was replaced
			s.final("f", "1", "2", "3")
		}},
		"a log shrinks": {"H2", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.read("r", 0, "1")
			o := s.read("r", 1)
			o.Outcome, o.OutOfRange = history.Fail, true
		}},
		"out of order": {"D7", func(s *script) {
			s.send(history.Info, "a", -1, "1")
			s.send(history.Info, "a", -1, "2")
			s.final("f", "2", "1")
		}},
		"one value for two requests": {"test", func(s *script) {
			s.send(history.OK, "a", 0, "1")
			s.send(history.OK, "b", 1, "1")
		}},
	}
}

func TestBadHistories(t *testing.T) {
	cases := wrongPlaces()
	maps.Copy(cases, wrongLogs())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var s script
			c.play(&s)
			found := history.Check(s.ops, history.Rules{})
			require.NotEmpty(t, found)
			var names []string
			for _, v := range found {
				names = append(names, v.Invariant)
				require.NotEmpty(t, v.Ops)
			}
			require.Contains(t, names, c.invariant, "%v", found)
			if c.invariant != "D4" && c.invariant != "test" {
				lax := history.Check(s.ops, history.Rules{Unclean: map[string]bool{"t": true}})
				require.LessOrEqual(t, len(lax), len(found))
			}
		})
	}
}

func TestHistoryIsWrittenAsLines(t *testing.T) {
	h := history.New()
	h.Add(&history.Op{Kind: history.Send, Outcome: history.Fail, Partition: p0, Values: []string{"1"}, Note: "full"})
	h.Add(&history.Op{Kind: history.Read, Outcome: history.OK, Partition: p0, Values: []string{"1"}, Offsets: []int64{0}})
	var b strings.Builder
	require.NoError(t, h.Write(&b))
	require.Equal(t, 2, strings.Count(b.String(), "\n"))
	require.Contains(t, b.String(), `"outcome":"fail"`)
	require.Contains(t, h.Ops()[0].String(), "t/0")
	require.Contains(t, h.Ops()[1].String(), "at 0 to 0")
	require.GreaterOrEqual(t, h.Now(), time.Duration(0))
}
