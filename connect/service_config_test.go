package connect_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect"
	"millrace/connect/store"
	"millrace/record"
)

// A config that is put as it was changes nothing; others are checked whole.
func TestPutAndPatchConfig(t *testing.T) {
	d := newDesk(t, 1, nil)
	ctx := t.Context()
	w := d.ask()
	_, created, err := w.PutConfig(ctx, "c", idleProps(idleSource, "secret=s3", "x=1"))
	require.NoError(t, err)
	require.True(t, created)
	require.NoError(t, w.Pause(ctx, "c"))
	checks := d.validated
	info, created, err := w.PutConfig(ctx, "c", idleProps(idleSource, "secret=s3", "x=1", "name=c"))
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, "[hidden]", info.Config["secret"])
	require.Equal(t, checks, d.validated, "nothing was to be checked")

	// The mask stands for what is stored.
	log := d.configs()
	info, _, err = w.PutConfig(ctx, "c", info.Config)
	require.NoError(t, err)
	require.Len(t, d.configs(), len(log))
	info, _, err = w.PutConfig(ctx, "c", with(info.Config, "x", "2"))
	require.NoError(t, err)
	require.Equal(t, "2", info.Config["x"])
	require.Contains(t, d.configs()[len(log)], `"secret":"s3"`)
	_, _, err = w.PutConfig(ctx, "other", with(info.Config, "name", "other"))
	refused(t, err, 400, "mask")

	two, none := "two", (*string)(nil)
	info, err = w.PatchConfig(ctx, "c", map[string]*string{"x": none, "y": &two})
	require.NoError(t, err)
	require.Equal(t, "two", info.Config["y"])
	require.NotContains(t, info.Config, "x")
	last := d.configs()[len(d.configs())-1]
	require.Contains(t, last, `"secret":"s3"`)
	_, err = w.PatchConfig(ctx, "c", map[string]*string{"connector.class": none})
	refused(t, err, 400, "connector.class")
	_, err = w.PatchConfig(ctx, "none", nil)
	refused(t, err, 404, "none")
	d.await("it stays paused", func() bool {
		st, err := w.Status(ctx, "c")
		return err == nil && st.Connector.State == "PAUSED"
	})
}

// configs are the configs of connectors that were ever written, in their order.
func (d *desk) configs() (out []string) {
	topic, err := d.client.Renew(d.t.Context(), "connect-configs")
	require.NoError(d.t, err)
	got, err := d.client.Fetch(d.t.Context(), client.FetchRequest{
		Topic: topic, Partitions: []client.FetchPartition{{}}, MaxBytes: 1 << 20,
	})
	require.NoError(d.t, err)
	require.NoError(d.t, got[0].Err)
	for rest := got[0].Batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		require.NoError(d.t, err)
		rest = after
		var r record.Record
		for reader := record.NewReader(b, 1<<20); reader.Next(&r); {
			if strings.HasPrefix(string(r.Key), "connector-") {
				out = append(out, string(r.Value))
			}
		}
	}
	return out
}

func with(props map[string]string, key, value string) map[string]string {
	out := maps.Clone(props)
	out[key] = value
	return out
}

// A worker that may reveal secrets does.
func TestSecretsAreRevealedWhereThatIsSet(t *testing.T) {
	d := newDesk(t, 1, func(s *connect.Settings) { s.RevealSecrets, s.TopicTracking = true, false })
	info, err := d.ask().Create(t.Context(), "c", idleProps(idleSource, "secret=s3"), "")
	require.NoError(t, err)
	require.Equal(t, "s3", info.Config["secret"])
	_, err = d.ask().Topics(t.Context(), "c")
	refused(t, err, 403, "tracked")
	refused(t, d.ask().ResetTopics(t.Context(), "c"), 403, "reset")
}

// Changes of one config from all nodes at once: none is lost.
func TestPatchesOfAllNodesAtOnce(t *testing.T) {
	d := newDesk(t, 3, nil)
	_, err := d.ask().Create(t.Context(), "c", idleProps(idleSource), "STOPPED")
	require.NoError(t, err)
	var working sync.WaitGroup
	for i, w := range d.workers {
		for j := range 5 {
			working.Go(func() {
				value := "v"
				for {
					_, err := w.PatchConfig(t.Context(), "c", map[string]*string{fmt.Sprintf("k%d.%d", i, j): &value})
					var fault *connect.Error
					if err == nil {
						return
					}
					if !errors.As(err, &fault) || fault.Status != 409 && fault.Status != 503 { // which may be done again
						t.Errorf("patch: %v", err)
						return
					}
				}
			})
		}
	}
	working.Wait()
	for range d.workers {
		info, err := d.ask().Info(t.Context(), "c")
		require.NoError(t, err)
		require.Len(t, info.Config, len(idleProps(idleSource))+1+15)
	}
}

// Nothing outside is asked with references instead of what they stand for.
func TestReferencesThatStandForNothing(t *testing.T) {
	d := newDesk(t, 1, nil)
	_, err := d.ask().Create(t.Context(), "c", idleProps(idleSource, "secret=${file:/etc/passwd:root}", "bad=rotten"), "")
	refused(t, err, 400, "1 error")
	refused(t, err, 400, "${file:/etc/passwd:root}")
	require.Zero(t, d.validated)
}

// All nodes remember the levels that are set, so there are not endlessly many.
func TestLevelsOfAllNodesAreBounded(t *testing.T) {
	d := newDesk(t, 1, nil)
	ctx, end := context.WithCancel(t.Context())
	require.NoError(t, d.ask().SetLogger(ctx, "first", "INFO"))
	s, err := store.New(store.Options{Client: d.client})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		end()
		running.Wait()
	})
	_, err = s.Update(ctx, func(*store.Configs) (out []store.Change, _ error) {
		for n := range 999 {
			out = append(out, store.SetLogger(fmt.Sprint("l", n), "INFO"))
		}
		return out, nil
	})
	require.NoError(t, err)
	refused(t, d.ask().SetLogger(ctx, "last", "INFO"), 400, "1000")
	require.NoError(t, d.ask().SetLogger(ctx, "first", "DEBUG"))
}
