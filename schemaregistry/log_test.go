package schemaregistry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/schemaregistry/schema"
)

func register(t require.TestingT, r *Registry, subject, text string) Version {
	v, err := r.Register(context.Background(), subject, RegisterRequest{Content: schema.Content{Text: text}})
	require.NoError(t, err)
	return v
}

// enum is a schema that is compatible with all others of its kind.
func enum(i int) string {
	return fmt.Sprintf(`{"type":"enum","name":"E","symbols":["S%d","D"],"default":"D"}`, i)
}

const schemaKeyOf = `{"keytype":"SCHEMA","subject":"%s","version":%d,"magic":1}`

// A record that cannot be understood is counted, and neither ends the reading nor makes anybody wait.
func TestReaderPassesOverWhatItDoesNotUnderstand(t *testing.T) {
	log := newFakeLog()
	log.put(
		`{"keytype":"NOOP","magic":0}`, "",
		"not JSON", `{}`,
		fmt.Sprintf(schemaKeyOf, "s", 1), `{"id":1,"schema":"\"int\""}`,
		fmt.Sprintf(schemaKeyOf, "s", 2), `{"id":"x"}`,
		fmt.Sprintf(schemaKeyOf, "s", 3), `{"id":3,"schema":"\"long\"","schemaType":"FUTURE"}`,
		"bad at the end", "x",
	)
	r := run(t, log, nil)
	require.NoError(t, r.AwaitRead(t.Context()))
	require.NoError(t, r.Ready())
	require.Equal(t, int64(6), r.Offset())
	numbers, err := r.Versions(t.Context(), "s", VersionsQuery{})
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, numbers)
	v, err := r.Version(t.Context(), "s", "3", false)
	require.NoError(t, err)
	require.Equal(t, schema.Type("FUTURE"), v.Content.Type)
	require.Equal(t, 4, register(t, r, "other", `"string"`).ID, "what follows is not held up")
}

// What a log brought is served in every form, also where it is no schema.
func TestInvalidSchemasAreServed(t *testing.T) {
	log := newFakeLog()
	const dangling = `{"type":"record","name":"R","fields":[{"name":"f","type":"Gone"}]}`
	log.put(
		fmt.Sprintf(schemaKeyOf, "s", 1), `{"id":1,"schema":"no schema"}`,
		fmt.Sprintf(schemaKeyOf, "s", 2),
		fmt.Sprintf(`{"id":2,"schema":%q,"references":[{"name":"Gone","subject":"gone","version":1}]}`, dangling),
	)
	r := run(t, log, nil)
	require.NoError(t, r.AwaitRead(t.Context()))
	for number, text := range map[string]string{"1": "no schema", "2": dangling} {
		v, err := r.Version(t.Context(), "s", number, false)
		require.NoError(t, err)
		for _, format := range []string{"", "resolved", "serialized", "unknown"} {
			shown, err := r.Render(t.Context(), v, format, false)
			require.NoError(t, err, format)
			require.Equal(t, text, shown.Content.Text, format)
		}
		v, err = r.Tagged(t.Context(), v, []string{"*"})
		require.NoError(t, err)
		require.Empty(t, v.Tags)
	}
}

// The records that CSR writes, in the order in which it does.
func TestForeignLog(t *testing.T) {
	log := newFakeLog()
	log.put(
		`{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}`,
		`{"subject":"s","version":1,"id":1,"md5":"AAAA","schema":"\"int\"","deleted":false}`,
		`{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}`,
		`{"subject":"s","version":2,"id":2,"schema":"\"long\"","deleted":false}`,
		`{"keytype":"SCHEMA","subject":"t","version":1,"magic":0}`,
		`{"subject":"t","version":1,"id":1,"schema":"\"int\"","deleted":true}`,
		`{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}`, `{"subject":"s","version":2}`,
		`{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}`,
		`{"subject":"s","version":3,"id":2,"schema":"\"long\"","deleted":false}`,
		`{"keytype":"CONFIG","subject":null,"magic":0}`, `{"compatibilityLevel":"FULL"}`,
		`{"keytype":"MODE","subject":"t","magic":0}`, `{"subject":"t","mode":"READONLY"}`,
		`{"keytype":"SCHEMA","subject":"u","version":1,"magic":1}`,
		`{"subject":"u","version":1,"id":2,"schema":"\"bytes\"","deleted":false}`,
	)
	r := run(t, log, nil)
	ctx := t.Context()
	live, err := r.Versions(ctx, "s", VersionsQuery{})
	require.NoError(t, err)
	require.Equal(t, []int{3}, live, "a version that came after DELETE_SUBJECT is not deleted by it")
	all, err := r.Versions(ctx, "s", VersionsQuery{DeletedAsNegative: true})
	require.NoError(t, err)
	require.Equal(t, []int{-1, -2, 3}, all)
	v, err := r.ByID(ctx, 2, nil)
	require.NoError(t, err)
	require.Equal(t, `"long"`, v.Content.Text, "an id keeps its first meaning")
	_, err = r.Versions(ctx, "u", VersionsQuery{Deleted: true})
	require.Equal(t, CodeSubjectNotFound, codeOf(err))
	c, err := r.Config(ctx, "x", true)
	require.NoError(t, err)
	require.Equal(t, Full, *c.CompatibilityLevel)
	mode, err := r.Mode(ctx, "t", false)
	require.NoError(t, err)
	require.Equal(t, ReadOnly, mode)
	require.Equal(t, 3, register(t, r, "v", `"string"`).ID)
	require.Equal(t, 2, register(t, r, "w", `"long"`).ID)
}

// A key in other bytes than ours would outlive the record that removes it: compaction goes by bytes.
func TestOtherSpellingsAreRemovedToo(t *testing.T) {
	log := newFakeLog()
	log.put(
		`{"subject":"s","version":1,"keytype":"SCHEMA","magic":0}`, `{"id":1,"schema":"\"int\""}`,
		`{"keytype":"CONFIG","subject":null,"magic":0}`, `{"compatibilityLevel":"FULL"}`,
	)
	r := run(t, log, nil)
	ctx := t.Context()
	_, err := r.DeleteVersion(ctx, "s", "1", false)
	require.NoError(t, err)
	same := func() {
		t.Helper()
		r.read(func(s *state) { require.Equal(t, s.dump(), log.compacted().folded(t).dump()) })
	}
	same()
	require.Len(t, log.compacted().records, 2, "the version is there once")
	_, err = r.DeleteVersion(ctx, "s", "1", true)
	require.NoError(t, err)
	same()
	none := None
	_, err = r.SetConfig(ctx, "", ConfigUpdate{Compatibility: Change[string]{true, &none}})
	require.NoError(t, err)
	same()
	require.Equal(t, `{"keytype":"CONFIG","magic":0}`, string(log.compacted().records[1].Key))
	require.Equal(t, 2, register(t, r, "s", `"int"`).ID, "the id of what is gone is not given out again")
}

// The greatest id is not given out again though another registry has deleted its schema and left no mark.
func TestForeignDeletion(t *testing.T) {
	log := newFakeLog()
	log.put(
		fmt.Sprintf(schemaKeyOf, "s", 1), `{"id":1,"schema":"\"int\""}`,
		fmt.Sprintf(schemaKeyOf, "s", 2), `{"id":7,"schema":"\"long\""}`,
		fmt.Sprintf(schemaKeyOf, "s", 2), "",
	)
	r := run(t, log, nil)
	require.Equal(t, 1, register(t, r, "t", `"int"`).ID)
	r.read(func(s *state) { require.Equal(t, s.dump(), log.compacted().folded(t).dump()) })
	require.Equal(t, 8, register(t, r, "u", `"bytes"`).ID)
}

// Lost requests and lost answers: nothing is written twice, and what is answered is so.
func TestLostMessages(t *testing.T) {
	for _, how := range []loss{requestLost, answerLost} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			log := newFakeLog()
			var produced atomic.Int64
			log.fault = func(r kmsg.Request) loss {
				if _, ok := r.(*kmsg.ProduceRequest); ok && produced.Add(1)%2 == 1 {
					return how
				}
				return nothingLost
			}
			r := run(t, log, func(c *Config) { c.Compatibility = None })
			for i := range 5 {
				v := register(t, r, "s", enum(i))
				require.Equal(t, [2]int{i + 1, i + 1}, [2]int{v.Version, v.ID})
			}
			require.Equal(t, int64(5), log.length(), "each has one record")
			number, err := r.DeleteVersion(t.Context(), "s", "latest", false)
			require.NoError(t, err, "a delete that was carried out is not told that there is nothing to delete")
			require.Equal(t, 5, number)
			require.Equal(t, int64(6), log.length())
		})
	}
}

// While nothing is known the write goes on, and when its time is over it says so; the same request again finds what was
// written.
func TestUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		var cut atomic.Bool
		log.fault = func(r kmsg.Request) loss {
			if _, ok := r.(*kmsg.ProduceRequest); ok && cut.Load() {
				return answerLost
			}
			if _, ok := r.(*kmsg.FetchRequest); ok && cut.Load() {
				return requestLost
			}
			return nothingLost
		}
		r := run(t, log, func(c *Config) { c.Limits.WriteWait = 300 * time.Millisecond })
		register(t, r, "s", enum(0))
		cut.Store(true)
		_, err := r.Register(t.Context(), "s", RegisterRequest{Content: schema.Content{Text: enum(1)}})
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, CodeStoreTimeout, e.Code)
		require.True(t, e.Unknown)
		cut.Store(false)
		v := register(t, r, "s", enum(1))
		require.Equal(t, [2]int{2, 2}, [2]int{v.Version, v.ID})
		require.Equal(t, int64(2), log.length())
	})
}

// A write waits as long as it may for a leader that tells where the log ends, and for the brokers that the topic needs.
func TestWritesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		log.short = 5
		var cut atomic.Bool
		log.fault = func(r kmsg.Request) loss {
			if _, ok := r.(*kmsg.ListOffsetsRequest); ok && cut.Load() {
				return requestLost
			}
			return nothingLost
		}
		r := run(t, log, nil)
		register(t, r, "s", enum(0))
		cut.Store(true)
		time.AfterFunc(10*time.Second, func() { cut.Store(false) })
		v := register(t, r, "s", enum(1))
		require.Equal(t, [2]int{2, 2}, [2]int{v.Version, v.ID})
	})
}

// What lies between the registry and the cluster is not told to clients.
func TestNetworkIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		log.fault = func(r kmsg.Request) loss {
			if _, ok := r.(*kmsg.CreateTopicsRequest); ok {
				return requestLost
			}
			return nothingLost
		}
		r := run(t, log, func(c *Config) { c.Limits.WriteWait = 100 * time.Millisecond })
		_, err := r.Register(t.Context(), "s", RegisterRequest{Content: schema.Content{Text: enum(0)}})
		require.ErrorIs(t, err, errLost)
		require.EqualError(t, err, "topic _schemas cannot be created: the cluster gave no answer")
	})
}

// What another writer has appended is waited for until it is committed, and not asked about all the time.
func TestUncommittedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		var produced atomic.Int64
		log.fault = func(r kmsg.Request) loss {
			if _, ok := r.(*kmsg.ProduceRequest); ok {
				produced.Add(1)
			}
			return nothingLost
		}
		r := run(t, log, func(c *Config) { c.Compatibility = None })
		register(t, r, "s", enum(0))
		log.mu.Lock()
		log.hidden = 1
		log.mu.Unlock()
		log.put(fmt.Sprintf(schemaKeyOf, "s", 2), `{"id":7,"schema":"\"bytes\""}`)
		time.AfterFunc(10*time.Second, func() {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.hidden = 0
			log.change()
		})
		v := register(t, r, "s", enum(1))
		require.Equal(t, [2]int{3, 8}, [2]int{v.Version, v.ID})
		require.Less(t, produced.Load(), int64(20))
	})
}

// A write whose answer is lost just as the log is cut finds itself in what is read anew.
func TestWriteAcrossACut(t *testing.T) {
	log := newFakeLog()
	var lose atomic.Bool
	log.fault = func(r kmsg.Request) loss {
		if _, ok := r.(*kmsg.ProduceRequest); ok && lose.CompareAndSwap(true, false) {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.start, log.records = 1, log.records[1:]
			return answerLost
		}
		return nothingLost
	}
	r := run(t, log, nil)
	for i := range 3 {
		register(t, r, "s", enum(i))
	}
	lose.Store(true)
	number, err := r.DeleteVersion(t.Context(), "s", "3", false)
	require.NoError(t, err)
	require.Equal(t, 3, number)
}

// A request that is lost for good has certainly not been carried out by the time that the error says so.
func TestCertainFailure(t *testing.T) {
	log := newFakeLog()
	r := run(t, log, func(c *Config) { c.Limits.RecordBytes = 1000 })
	_, err := r.Register(t.Context(), "s", RegisterRequest{Content: schema.Content{
		Text: enum(0), Metadata: &schema.Metadata{Properties: map[string]string{"p": string(make([]byte, 1000))}},
	}})
	require.Equal(t, CodeTooLarge, codeOf(err))
	_, err = r.Register(t.Context(), "s", RegisterRequest{Content: schema.Content{Text: string(make([]byte, 1001))}})
	require.Equal(t, CodeTooLarge, codeOf(err))
	require.Zero(t, log.length())
	register(t, r, "s", enum(0))
}

// Another writer's record between the decision and the append makes the decision void.
func TestConflict(t *testing.T) {
	log := newFakeLog()
	var once sync.Once
	log.fault = func(r kmsg.Request) loss {
		if _, ok := r.(*kmsg.ProduceRequest); ok {
			once.Do(func() {
				log.put(fmt.Sprintf(schemaKeyOf, "other", 1), `{"id":1,"schema":"\"bytes\""}`)
			})
		}
		return nothingLost
	}
	r := run(t, log, nil)
	require.Equal(t, 2, register(t, r, "s", enum(0)).ID)
}

// A topic that is deleted and made again, or cut, is read again from its start.
func TestTopicIsRecreated(t *testing.T) {
	log := newFakeLog()
	var said strings.Builder // read where the reader has nothing to say
	r := run(t, log, func(c *Config) {
		c.Compatibility = None
		c.Logger = slog.New(slog.NewTextHandler(&said, nil))
	})
	for i := range 3 {
		register(t, r, "s", enum(i))
	}
	log.drop()
	require.Eventually(t, func() bool {
		names, err := r.Subjects(t.Context(), SubjectsQuery{})
		return err == nil && len(names) == 0
	}, time.Minute, 5*time.Millisecond)
	require.Contains(t, said.String(), "the log of schemas is gone")
	v := register(t, r, "t", enum(0))
	require.Equal(t, [2]int{1, 1}, [2]int{v.Version, v.ID})
	names, err := r.Subjects(t.Context(), SubjectsQuery{})
	require.NoError(t, err)
	require.Equal(t, []string{"t"}, names)

	log.mu.Lock() // another one takes its place at once
	log.create()
	log.mu.Unlock()
	log.put(fmt.Sprintf(schemaKeyOf, "u", 1), `{"id":9,"schema":"\"bytes\""}`)
	require.Eventually(t, func() bool {
		names, err := r.Subjects(t.Context(), SubjectsQuery{})
		return err == nil && len(names) == 1 && names[0] == "u"
	}, time.Minute, 5*time.Millisecond)
	require.Equal(t, 10, register(t, r, "u", enum(0)).ID)

	log.mu.Lock() // the first record is deleted
	log.start, log.records = 1, log.records[1:]
	log.mu.Unlock()
	require.Eventually(t, func() bool {
		numbers, err := r.Versions(t.Context(), "u", VersionsQuery{})
		return err == nil && len(numbers) == 1 && numbers[0] == 2
	}, time.Minute, 5*time.Millisecond)
}

// Reads that come together ask for the log's end once; one that comes later asks again. Without an answer they go on
// with what is in memory.
func TestFreshIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		log.put(fmt.Sprintf(schemaKeyOf, "s", 1), `{"id":1,"schema":"\"bytes\""}`)
		var asked atomic.Int64
		var cut atomic.Bool
		log.fault = func(r kmsg.Request) loss {
			if r, ok := r.(*kmsg.ListOffsetsRequest); ok && r.Topics[0].Partitions[0].Timestamp == client.Latest {
				asked.Add(1)
				time.Sleep(100 * time.Millisecond)
				if cut.Load() {
					time.Sleep(time.Minute)
					return requestLost
				}
			}
			return nothingLost
		}
		r := run(t, log, func(c *Config) { c.Limits.FreshWait = 0 })
		require.NoError(t, r.AwaitRead(t.Context()))
		before := asked.Load()
		var reads sync.WaitGroup
		for range 100 {
			reads.Go(func() {
				_, err := r.Version(t.Context(), "s", "1", false)
				require.NoError(t, err)
			})
		}
		reads.Wait()
		require.LessOrEqual(t, asked.Load()-before, int64(2))

		cut.Store(true)
		began := time.Now()
		_, err := r.Version(t.Context(), "s", "1", false)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began))
		began = time.Now()
		_, err = r.ByID(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "an id that is known needs no question")
		var refused *Error
		_, err = r.ByID(t.Context(), 2, nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, CodeStoreFailed, refused.Code, "it may have been given to somebody")
		_, err = r.ByGUID(t.Context(), [16]byte{1})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, CodeStoreFailed, refused.Code)
		cut.Store(false)
		time.Sleep(2 * time.Minute) // until the questions are over that get no answer
		_, err = r.ByID(t.Context(), 2, nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, CodeSchemaNotFound, refused.Code)
	})
}

// Before anything was read, reads wait, and say in the end why there is no answer.
func TestNothingIsReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		log.fault = func(kmsg.Request) loss { return requestLost }
		r := run(t, log, nil)
		require.Error(t, r.Ready())
		_, err := r.ByID(t.Context(), 1, nil)
		require.Equal(t, CodeStoreFailed, codeOf(err))
		_, err = r.Register(t.Context(), "s", RegisterRequest{Content: schema.Content{Text: enum(0)}})
		require.Equal(t, CodeStoreFailed, codeOf(err))
		require.ErrorContains(t, r.Ready(), "still reading")
	})
}

// A registry that hears nothing of its log for long is not ready.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		var cut atomic.Bool
		log.fault = func(kmsg.Request) loss {
			if cut.Load() {
				return requestLost
			}
			return nothingLost
		}
		r := run(t, log, nil)
		register(t, r, "s", enum(0))
		require.NoError(t, r.Ready())
		cut.Store(true)
		time.Sleep(readySilence + 10*time.Second)
		require.ErrorContains(t, r.Ready(), "has not heard")
		cut.Store(false)
		time.Sleep(10 * time.Second)
		require.NoError(t, r.Ready())
	})
}

// Two registries over one log give one schema one id and no id twice, whatever is lost on the way.
func TestTwoRegistriesAtOnce(t *testing.T) {
	log := newFakeLog()
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(7, 7))
	log.fault = func(r kmsg.Request) loss {
		if _, ok := r.(*kmsg.ProduceRequest); !ok {
			return nothingLost
		}
		mu.Lock()
		defer mu.Unlock()
		return loss(max(chance.IntN(8)-5, 0))
	}
	set := func(c *Config) { c.Compatibility = None }
	registries := []*Registry{run(t, log, set), run(t, log, set)}
	got := raceToRegister(t, registries, 6, 8)
	checkRace(t, got)
	r := registries[0]
	require.NoError(t, r.Fresh(t.Context()))
	r.read(func(s *state) { require.Equal(t, log.folded(t).dump(), s.dump()) })
}

// Of many who delete one version at once one is told that he did, though his answer was lost.
func TestOneDeletes(t *testing.T) {
	log := newFakeLog()
	var produced atomic.Int64
	log.fault = func(r kmsg.Request) loss {
		if _, ok := r.(*kmsg.ProduceRequest); ok && produced.Add(1)%3 == 0 {
			return answerLost
		}
		return nothingLost
	}
	registries := []*Registry{run(t, log, nil), run(t, log, nil)}
	for i := range 10 {
		v := register(t, registries[i%2], "s", enum(0))
		var deleted atomic.Int64
		var running sync.WaitGroup
		for j := range 6 {
			running.Go(func() {
				_, err := registries[j%2].DeleteVersion(t.Context(), "s", fmt.Sprint(v.Version), false)
				if err == nil {
					deleted.Add(1)
				} else if codeOf(err) != CodeVersionSoftDeleted {
					t.Errorf("delete: %v", err)
				}
			})
		}
		running.Wait()
		require.Equal(t, int64(1), deleted.Load())
	}
}

// answered is what a register was answered.
type answered struct {
	subject, text string
	version, id   int
}

// raceToRegister has clients register the same and different schemas in the same and different subjects at once.
func raceToRegister(t *testing.T, registries []*Registry, clients, schemas int) (out []answered) {
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			r := registries[i%len(registries)]
			for j := range schemas {
				for _, subject := range []string{"shared", fmt.Sprint("own-", i)} {
					text := enum(j)
					v, err := r.Register(t.Context(), subject, RegisterRequest{Content: schema.Content{Text: text}})
					if err != nil {
						t.Errorf("register %d in %s: %v", j, subject, err)
						return
					}
					mu.Lock()
					out = append(out, answered{subject, text, v.Version, v.ID})
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	return out
}

// checkRace makes sure that each schema has one id and each id one schema, and each version of a subject one schema.
func checkRace(t *testing.T, got []answered) {
	t.Helper()
	ids, texts := map[int]string{}, map[string]int{}
	versions, held := map[string]string{}, map[string]int{}
	for _, a := range got {
		if was, ok := ids[a.id]; ok {
			require.Equal(t, was, a.text, "id %d", a.id)
		}
		if was, ok := texts[a.text]; ok {
			require.Equal(t, was, a.id, "schema %s", a.text)
		}
		ids[a.id], texts[a.text] = a.text, a.id
		place := fmt.Sprint(a.subject, "/", a.version)
		if was, ok := versions[place]; ok {
			require.Equal(t, was, a.text, "version %s", place)
		}
		if was, ok := held[a.subject+a.text]; ok {
			require.Equal(t, was, a.version, "schema %s in %s", a.text, a.subject)
		}
		versions[place], held[a.subject+a.text] = a.text, a.version
	}
	require.Len(t, ids, len(texts))
}

func TestErrors(t *testing.T) {
	cause := errors.New("why")
	e := AsError(cause)
	require.Equal(t, CodeStoreFailed, e.Code)
	require.Equal(t, 500, e.Status())
	require.ErrorIs(t, e, cause)
	require.Equal(t, 409, (&Error{Code: CodeIncompatible}).Status())
	require.Same(t, e, AsError(fmt.Errorf("more: %w", e)))
	_, err := New(Config{})
	require.Error(t, err)
	_, err = New(Config{Client: client.New(newFakeLog(), client.Options{}), Compatibility: "SOME"})
	require.Error(t, err)
}

// An error quotes what is wrong, but not all of it.
func TestLongErrors(t *testing.T) {
	r := run(t, newFakeLog(), nil)
	long := strings.Repeat("x", 300_000)
	for _, c := range []schema.Content{
		{Text: `"` + long + `"`},
		{Text: `{"$ref":"#/` + long + `"}`, Type: schema.JSON},
		{Text: `syntax="proto3"; message M { ` + long + ` f = 1; }`, Type: schema.Protobuf},
	} {
		_, err := r.Register(t.Context(), "s", RegisterRequest{Content: c})
		require.Error(t, err)
		require.Equal(t, CodeInvalidSchema, AsError(err).Code)
		require.Less(t, len(err.Error()), 11<<10)
	}
}
