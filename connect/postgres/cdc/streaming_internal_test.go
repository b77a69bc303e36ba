package cdc

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// offlineTask is a task that reads from blocks which are there already. Its clock goes on with each look.
func offlineTask(t *testing.T, blocks []*block, props map[string]string) *task {
	all := map[string]string{"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p",
		"millrace.publication.check.ms": "0"}
	for k, v := range props {
		all[k] = v
	}
	s, problems := parseSettings(all)
	require.Empty(t, problems)
	k := newTask()
	clock := time.UnixMilli(1_700_000_000_000)
	now := func() time.Time { clock = clock.Add(time.Millisecond); return clock }
	k.s, k.now, k.at, k.recent, k.metrics = s, now, &position{}, newRecent(), newMetrics(prometheus.NewRegistry())
	k.events = newEvents(s, "c", 0, now)
	k.beats.looked = clock.Add(time.Hour) // there is no server to look at
	k.session = &session{s: s, current: map[uint32]*table{}, all: map[string]*table{},
		stream: &stream{blocks: make(chan *block, len(blocks)), free: make(chan *block, 1)}}
	for _, b := range blocks {
		k.session.stream.blocks <- b
	}
	return k
}

// The server may have more to send for hours, and blocks may end amid transactions all the while: heartbeats come, and
// the place is stored, though nothing is captured.
func TestStreamThatNeverPauses(t *testing.T) {
	at := lsn(1000)
	var blocks []*block
	for range 500 {
		b := new(block)
		b.reset()
		for range 20 {
			if at > 1000 {
				b.add(at, commitMessage(at, at+8, 0), nil)
			}
			at += 100
			b.add(at, beginMessage(at, 0, 7), nil)
			b.add(at, text(append(changeMessage(msgInsert, 5), 'N'), "1"), nil)
		}
		blocks = append(blocks, b)
	}
	k := offlineTask(t, blocks, map[string]string{"heartbeat.interval.ms": "200"})
	k.session.current[5] = &table{name: tableName{"public", "other"}, width: 1}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heartbeats := 0
	for k.given < 500_000 {
		out, err := k.streamPoll(ctx)
		require.NoError(t, err)
		for _, r := range out {
			if r.Topic != "" {
				require.Equal(t, "__debezium-heartbeat.p", r.Topic)
				heartbeats++
			}
		}
	}
	require.Greater(t, heartbeats, 5)
	require.NotEmpty(t, k.session.stream.blocks)
}
