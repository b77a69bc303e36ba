package cdc

import (
	"runtime"
	"strconv"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

// BenchmarkPoll makes polls of some events each.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{1, 10, 100, 8192} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := someEvents(b)
			b.ReportAllocs()
			for b.Loop() {
				for range n {
					v := e.new(sourceSchema)
					v.Values[0], v.Values[1], v.Values[2] = e.new(messageBlockSchema), e.new(messageBlockSchema), e.new(blockSchema)
					e.add("t", nil, nil, sourceSchema, v)
				}
				if len(e.take()) != n {
					b.Fatal("records are missing")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
		})
	}
}

func someEvents(t testing.TB) *events {
	s, problems := parseSettings(map[string]string{"database.hostname": "h", "database.user": "u",
		"database.dbname": "d", "topic.prefix": "p"})
	require.Empty(t, problems)
	return newEvents(s, "c", 0, time.Now)
}

// What a poll gave away is free as soon as whoever has it lets go of it, however many come after it: none shares a
// piece of memory with the next.
func TestPollsShareNoMemory(t *testing.T) {
	e := someEvents(t)
	var given []weak.Pointer[plugin.SourceRecord]
	for range 20 {
		for range slab * 2 / 3 {
			e.add("t", nil, nil, sourceSchema, e.new(sourceSchema))
		}
		out := e.take()
		given = append(given, weak.Make(out[0]), weak.Make(out[len(out)-1]))
	}
	runtime.GC()
	for i, p := range given {
		require.Nil(t, p.Value(), "poll %d is still in memory", i/2)
	}
	runtime.KeepAlive(e)
}
