package native_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// errNoValue is what getValue says of a 404.
var errNoValue = errors.New("no value")

// getValue reads the value of a key.
func getValue(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/octet-stream")
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusNotFound:
		return "", errNoValue
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%d %s", resp.StatusCode, body)
	}
	return string(body), nil
}

// register is a key that one writer writes rising numbers to. A read has to give at least what was acknowledged, or
// read by another, before it began, and at most what was being written when it ended: then reads and writes have one
// order that fits all of them.
type register struct {
	acked, begun, read atomic.Int64
}

func raise(v *atomic.Int64, to int64) {
	for was := v.Load(); was < to && !v.CompareAndSwap(was, to); was = v.Load() {
	}
}

// observe reads the register, and checks what comes.
func (g *register) observe(read func() (string, error)) error {
	least := max(g.acked.Load(), g.read.Load())
	text, err := read()
	n := int64(0)
	switch {
	case errors.Is(err, errNoValue):
	case err != nil:
		return nil // nothing was said
	default:
		if n, err = strconv.ParseInt(text, 10, 64); err != nil {
			return err
		}
	}
	if most := g.begun.Load(); n < least || n > most {
		return fmt.Errorf("read %d; acknowledged or read before: %d, being written: %d", n, least, most)
	}
	raise(&g.read, n)
	return nil
}

// TestKeysAreLinearizable reads keys on all nodes of a cluster, while they are written on all nodes, leaders move and
// the topic is compacted.
func TestKeysAreLinearizable(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	const configs = `{"cleanup.policy":"compact","min.cleanable.dirty.ratio":"0","segment.bytes":"1048576",` +
		`"min.insync.replicas":"2","segment.ms":"100"}`
	resp, err := c.Client.Post(c.URL(1)+"/v1/topics", "application/json",
		strings.NewReader(`{"name":"c","partitions":2,"replication_factor":3,"configs":`+configs+`}`))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var reads atomic.Int64
	registers := make([]register, 4)
	for i := range registers {
		g, key := &registers[i], fmt.Sprintf("key-%d", i)
		wg.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				g.begun.Store(n)
				url := fmt.Sprintf("%s/v1/topics/c/records?key=%s", c.URL(1+int(n)%3), key)
				resp, err := c.Client.Post(url, "application/json", strings.NewReader(fmt.Sprint(n)))
				if err != nil {
					continue // not known: a later one is greater
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					g.acked.Store(n)
				}
			}
		})
		for range 2 {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					url := fmt.Sprintf("%s/v1/topics/c/keys/%s", c.URL(1+r.IntN(3)), key)
					if err := g.observe(func() (string, error) { return getValue(ctx, c.Client, url) }); err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
					reads.Add(1)
				}
			})
		}
	}
	for id := 1; id <= 3; id++ {
		await(t, func() bool { return reads.Load() > int64(300*id) })
		c.Stop(id)
		await(t, func() bool { return reads.Load() > int64(300*id+150) })
		c.Start(id)
		c.AwaitReady()
	}
	cancel()
	wg.Wait()
	for i := range registers {
		require.Positive(t, registers[i].acked.Load())
		url := fmt.Sprintf("%s/v1/topics/c/keys/key-%d", c.URL(1), i)
		require.NoError(t, registers[i].observe(func() (string, error) { return getValue(t.Context(), c.Client, url) }))
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond)
}
