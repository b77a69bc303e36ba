package cdc

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

// What a poll gave away is free as soon as whoever has it lets go of it, however many come after it: none shares a
// piece of memory with the next.
func TestPollsShareNoMemory(t *testing.T) {
	s, problems := parseSettings(map[string]string{"database.hostname": "h", "database.user": "u",
		"database.dbname": "d", "topic.prefix": "p"})
	require.Empty(t, problems)
	e := newEvents(s, "c", 0, time.Now)
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
