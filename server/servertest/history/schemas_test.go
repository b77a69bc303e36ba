package history_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/history"
)

func (s *script) schema(kind history.Kind, out history.Outcome, q history.Schema) *history.Op {
	if q.Context == "" {
		q.Context = "."
	}
	return s.add(&history.Op{Kind: kind, Outcome: out, Schema: &q})
}

func registered(subject, text string, id, version int) history.Schema {
	return history.Schema{Subject: subject, Text: text, ID: id, Version: version, Kept: true}
}

func own(q history.Schema) history.Schema {
	q.Subject, q.Own, q.Fresh = "own", true, true
	return q
}

// registryCase is a history, and the invariant that it breaks.
type registryCase struct {
	want string
	play func(s *script)
}

// What a registry may do, and what it may not.
func TestSchemas(t *testing.T) {
	checkCases(t, map[string]registryCase{
		"the same again": {"", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.Register, history.OK, registered("t", "a", 1, 1))
			s.schema(history.ByID, history.OK, history.Schema{ID: 1, Text: "a", Kept: true, Fresh: true})
			s.schema(history.Register, history.OK, history.Schema{Context: ".c", Subject: ":.c:s", Text: "b", ID: 1, Version: 1})
		}},
		"an id of two schemas": {"S1", func(s *script) {
			s.schema(history.Register, history.OK, history.Schema{Subject: "s", Text: "a", ID: 1, Version: 1})
			s.schema(history.Register, history.OK, history.Schema{Subject: "t", Text: "b", ID: 1, Version: 1})
		}},
		"a schema of two ids": {"S1", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.Register, history.OK, registered("t", "a", 2, 1))
		}},
		"a version of two schemas": {"S2", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.ByVersion, history.OK, registered("s", "b", 2, 1))
		}},
		"an id that is not found": {"S3", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.ByID, history.OK, history.Schema{ID: 1, Missing: true, Kept: true, Fresh: true})
		}},
		"an id that is not found where little is known": {"", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.ByID, history.OK, history.Schema{ID: 1, Missing: true, Kept: true})
		}},
		"a version that is not listed": {"S3", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.Register, history.OK, registered("s", "b", 2, 2))
			s.schema(history.Versions, history.OK, history.Schema{
				Subject: "s", Numbers: []int{1}, Deleted: true, Kept: true, Fresh: true,
			})
		}},
		"a schema that is not found": {"S3", func(s *script) {
			s.schema(history.Register, history.OK, registered("s", "a", 1, 1))
			s.schema(history.LookUp, history.OK, history.Schema{
				Subject: "s", Text: "a", Deleted: true, Missing: true, Kept: true, Fresh: true,
			})
		}},
	})
}

// What it may do to who changes a subject alone.
func TestOwnSubjects(t *testing.T) {
	checkCases(t, map[string]registryCase{
		"one's own": {"", func(s *script) {
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 1}))
			s.schema(history.SetLevel, history.OK, own(history.Schema{Level: "BACKWARD"}))
			s.schema(history.Register, history.Fail, own(history.Schema{Text: "n", Needs: true, Refused: true}))
			s.schema(history.Remove, history.OK, own(history.Schema{Version: 1}))
			s.schema(history.Versions, history.OK, own(history.Schema{Missing: true}))
			s.schema(history.ByVersion, history.OK, own(history.Schema{Version: 1, Text: "a", Deleted: true}))
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 2}))
			s.schema(history.Versions, history.OK, own(history.Schema{Numbers: []int{2}}))
			s.schema(history.ReadsLevel, history.OK, own(history.Schema{Level: "BACKWARD"}))
			s.schema(history.Remove, history.Info, own(history.Schema{Version: 2}))
			s.schema(history.Versions, history.OK, own(history.Schema{Numbers: []int{2}}))
		}},
		"a number that comes back": {"S2", func(s *script) {
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 1}))
			s.schema(history.Remove, history.OK, own(history.Schema{Version: 1}))
			s.schema(history.Register, history.OK, own(history.Schema{Text: "b", ID: 2, Version: 1}))
		}},
		"an acceptance against the level": {"S2", func(s *script) {
			s.schema(history.SetLevel, history.OK, own(history.Schema{Level: "BACKWARD"}))
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 1}))
			s.schema(history.Register, history.OK, own(history.Schema{Text: "n", ID: 2, Version: 2, Needs: true}))
		}},
		"a refusal without a reason": {"S2", func(s *script) {
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 1}))
			s.schema(history.Register, history.Fail, own(history.Schema{Text: "n", Needs: true, Refused: true}))
		}},
		"a deletion that is not seen": {"S3", func(s *script) {
			s.schema(history.Register, history.OK, own(history.Schema{Text: "a", ID: 1, Version: 1}))
			s.schema(history.Remove, history.OK, own(history.Schema{Version: 1}))
			s.schema(history.Versions, history.OK, own(history.Schema{Numbers: []int{1}}))
		}},
		"a level that is not seen": {"S3", func(s *script) {
			s.schema(history.SetLevel, history.OK, own(history.Schema{Level: "BACKWARD"}))
			s.schema(history.ReadsLevel, history.OK, own(history.Schema{Level: "NONE"}))
		}},
		"what was refused is there": {"S3", func(s *script) {
			s.schema(history.Register, history.Fail, own(history.Schema{Text: "a"}))
			s.schema(history.Versions, history.OK, own(history.Schema{Numbers: []int{1}}))
		}},
	})
}

func checkCases(t *testing.T, cases map[string]registryCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			c.play(s)
			found := history.CheckSchemas(s.ops)
			if c.want == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Equal(t, c.want, found[0].Invariant, found[0])
		})
	}
}
