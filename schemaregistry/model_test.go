package schemaregistry

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"millrace/schemaregistry/schema"
)

// dump is all that a state means, as text.
func (s *state) dump() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.contexts)) {
		c := s.contexts[name]
		fmt.Fprintf(&out, "context %s recorded=%t next=%d\n", name, c.recorded, c.maxID+1)
		for _, id := range slices.Sorted(maps.Keys(c.ids)) {
			fmt.Fprintf(&out, "  id %d %s holders=%d\n", id, c.ids[id].Text, len(c.ids[id].holders))
		}
		for _, n := range slices.Sorted(maps.Keys(c.subjects)) {
			for _, v := range c.subjects[n].versions {
				fmt.Fprintf(&out, "  %s/%d id=%d deleted=%t ts=%d refs=%v\n", n, v.number, v.content.id, v.deleted,
					v.timestamp, v.targets())
			}
		}
	}
	for _, by := range slices.SortedFunc(maps.Keys(s.configs), Subject.compare) {
		fmt.Fprintf(&out, "config %s %s\n", by, encode(s.configs[by]))
	}
	for _, by := range slices.SortedFunc(maps.Keys(s.modes), Subject.compare) {
		fmt.Fprintf(&out, "mode %s %s\n", by, s.modes[by])
	}
	refs := 0
	for _, by := range s.referrers {
		refs += len(by)
	}
	fmt.Fprintf(&out, "versions=%d referrers=%d\n", s.versions, refs)
	return out.String()
}

// modelVersion is a version as the model sees it.
type modelVersion struct {
	number, id int
	text       string
	deleted    bool
}

// model is the registry without references, compatibility and a log: lists that are searched.
type model struct {
	subjects map[Subject][]modelVersion
	given    map[string]int // the greatest id by context
	configs  map[Subject]string
	modes    map[Subject]string
	contexts map[string]bool
}

func (m *model) live(s Subject) (out []modelVersion) {
	for _, v := range m.subjects[s] {
		if !v.deleted {
			out = append(out, v)
		}
	}
	return out
}

func (m *model) register(s Subject, text string) (v modelVersion, code int) {
	for _, v := range slices.Backward(m.live(s)) {
		if v.text == text {
			return v, 0
		}
	}
	if m.mode(s) == ReadOnly {
		return v, CodeNotPermitted
	}
	id := 0
	for other, versions := range m.subjects {
		for _, v := range versions {
			if other.Context == s.Context && v.text == text {
				id = v.id
			}
		}
	}
	if id == 0 {
		id = m.given[s.Context] + 1
		m.given[s.Context] = id
	}
	v = modelVersion{number: 1, id: id, text: text}
	var kept []modelVersion
	for _, old := range m.subjects[s] {
		v.number = old.number + 1
		if !old.deleted || old.id != id {
			kept = append(kept, old)
		}
	}
	m.subjects[s] = append(kept, v)
	m.contexts[s.Context] = true
	return v, 0
}

func (m *model) mode(s Subject) string {
	if mode := m.modes[s]; mode != "" {
		return mode
	}
	return ReadWrite
}

func (m *model) deleteSubject(s Subject, permanent bool) (numbers []int, code int) {
	all := m.subjects[s]
	switch live := len(m.live(s)); {
	case len(all) == 0:
		return nil, CodeSubjectNotFound
	case !permanent && live == 0:
		return nil, CodeSubjectSoftDeleted
	case permanent && live > 0:
		return nil, CodeSubjectNotSoftDeleted
	case m.mode(s) == ReadOnly:
		return nil, CodeNotPermitted
	}
	for i := range all {
		if permanent || !all[i].deleted {
			numbers = append(numbers, all[i].number)
		}
		all[i].deleted = true
	}
	if permanent {
		m.forget(s)
	}
	return numbers, 0
}

func (m *model) forget(s Subject) {
	delete(m.subjects, s)
	delete(m.configs, s)
	delete(m.modes, s)
}

func (m *model) deleteVersion(s Subject, number int, permanent bool) int {
	all := m.subjects[s]
	i := slices.IndexFunc(all, func(v modelVersion) bool { return v.number == number })
	switch {
	case len(all) == 0:
		return CodeSubjectNotFound
	case i < 0:
		return CodeVersionNotFound
	case all[i].deleted && !permanent:
		return CodeVersionSoftDeleted
	case !all[i].deleted && permanent:
		return CodeVersionNotSoftDeleted
	case m.mode(s) == ReadOnly:
		return CodeNotPermitted
	}
	if all[i].deleted = true; permanent {
		if m.subjects[s] = slices.Delete(all, i, i+1); len(m.subjects[s]) == 0 {
			m.forget(s)
		}
	}
	return 0
}

func (m *model) undelete(s Subject, number int) int {
	all := m.subjects[s]
	i := slices.IndexFunc(all, func(v modelVersion) bool { return v.number == number })
	switch {
	case len(all) == 0:
		return CodeSubjectNotFound
	case i < 0:
		return CodeVersionNotFound
	case m.mode(s) == ReadOnly:
		return CodeNotPermitted
	}
	all[i].deleted = false
	return 0
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	return AsError(err).Code
}

// Whatever is done and lost on the way, the registry answers as the model does, and both the log and the log once
// compacted fold into the same state with the same next ids.
func TestRegistryIsAsTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := newFakeLog()
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		log.fault = func(r kmsg.Request) loss { // one call at a time
			if _, ok := r.(*kmsg.ProduceRequest); ok {
				return loss(max(chance.IntN(60)-57, 0))
			}
			return nothingLost
		}
		r := run(t, log, func(c *Config) { c.Compatibility = None })
		m := &model{
			subjects: map[Subject][]modelVersion{}, given: map[string]int{}, configs: map[Subject]string{},
			modes: map[Subject]string{}, contexts: map[string]bool{},
		}
		steps := rapid.IntRange(1, 40).Draw(rt, "steps")
		for range steps {
			modelStep(rt, r, m)
			checkModel(rt, r, m)
			folded := log.folded(rt).dump()
			r.read(func(s *state) { require.Equal(rt, folded, s.dump(), "the log folds into the same state") })
			require.Equal(rt, folded, log.compacted().folded(rt).dump(), "compacted too")
		}
	})
}

func modelStep(t *rapid.T, r *Registry, m *model) {
	ctx := context.Background()
	s := rapid.SampledFrom([]Subject{{".", "a"}, {".", "b"}, {".c", "a"}}).Draw(t, "subject")
	number := rapid.IntRange(1, 4).Draw(t, "version")
	permanent := rapid.Bool().Draw(t, "permanent")
	version := fmt.Sprint(number)
	switch what := rapid.IntRange(0, 9).Draw(t, "what"); what {
	case 0, 1, 2, 3:
		text := rapid.SampledFrom([]string{`"int"`, `"long"`, `"string"`}).Draw(t, "text")
		v, err := r.Register(ctx, s.String(), RegisterRequest{Content: schema.Content{Text: text}})
		want, code := m.register(s, text)
		require.Equal(t, code, codeOf(err), "register %s in %s: %v", text, s, err)
		if code == 0 {
			require.Equal(t, want, modelVersion{v.Version, v.ID, v.Content.Text, v.Deleted}, "register %s in %s", text, s)
		}
	case 4:
		numbers, err := r.DeleteSubject(ctx, s.String(), permanent)
		want, code := m.deleteSubject(s, permanent)
		require.Equal(t, code, codeOf(err), "delete %s permanently=%t: %v", s, permanent, err)
		require.Equal(t, want, numbers)
	case 5, 6:
		_, err := r.DeleteVersion(ctx, s.String(), version, permanent)
		require.Equal(t, m.deleteVersion(s, number, permanent), codeOf(err), "delete %s/%d permanently=%t: %v", s, number,
			permanent, err)
	case 7:
		_, err := r.Undelete(ctx, s.String(), version)
		require.Equal(t, m.undelete(s, number), codeOf(err), "undelete %s/%d: %v", s, number, err)
	case 8:
		mode := rapid.SampledFrom([]string{ReadWrite, ReadOnly}).Draw(t, "mode")
		require.NoError(t, r.SetMode(ctx, s.String(), &mode, false))
		m.modes[s] = mode
	case 9:
		if m.mode(s) == ReadOnly {
			return
		}
		level := rapid.SampledFrom([]string{None}).Draw(t, "level")
		_, err := r.SetConfig(ctx, s.String(), ConfigUpdate{Compatibility: Change[string]{true, &level}})
		require.NoError(t, err)
		m.configs[s] = level
	}
}

func checkModel(t *rapid.T, r *Registry, m *model) {
	ctx := context.Background()
	for _, s := range []Subject{{".", "a"}, {".", "b"}, {".c", "a"}} {
		var want []int
		for _, v := range m.subjects[s] {
			want = append(want, v.number)
			got, err := r.Version(ctx, s.String(), fmt.Sprint(v.number), true)
			require.NoError(t, err)
			require.Equal(t, v, modelVersion{got.Version, got.ID, got.Content.Text, got.Deleted})
			name := s.String()
			got, err = r.ByID(ctx, v.id, &name)
			require.NoError(t, err)
			require.Equal(t, v.text, got.Content.Text)
		}
		got, err := r.Versions(ctx, s.String(), VersionsQuery{Deleted: true})
		require.Equal(t, want, got)
		require.Equal(t, want == nil, err != nil)
		id, err := r.MaxID(ctx, s.String())
		require.NoError(t, err)
		require.Equal(t, m.given[s.Context], id)
		_, err = r.Config(ctx, s.String(), false)
		require.Equal(t, m.configs[s] != "", err == nil)
		mode, _ := r.Mode(ctx, s.String(), false)
		require.Equal(t, m.modes[s], mode)
	}
}
