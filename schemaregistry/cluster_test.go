package schemaregistry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/server/servertest"
)

// unreliable is a cluster that now and then loses a produce on its way, or the answer to one that was carried out.
type unreliable struct {
	to     kmsg.Requestor
	mu     sync.Mutex
	chance *rand.Rand
	calm   atomic.Bool
	lost   atomic.Int64
	// produced is called after each produce that was carried out.
	produced func()
}

var errLost = errors.New("the message was lost")

// Request implements kmsg.Requestor.
func (u *unreliable) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if _, ok := r.(*kmsg.ProduceRequest); !ok || u.calm.Load() {
		return u.to.Request(ctx, r)
	}
	u.mu.Lock()
	n := u.chance.IntN(8)
	u.mu.Unlock()
	if n == 0 {
		u.lost.Add(1)
		return nil, errLost
	}
	resp, err := u.to.Request(ctx, r)
	if u.produced != nil && err == nil {
		u.produced()
	}
	if n == 1 && err == nil {
		u.lost.Add(1)
		return nil, errLost
	}
	return resp, err
}

// startRegistry runs a registry of its own on a cluster.
func startRegistry(t *testing.T, cluster kmsg.Requestor) *schemaregistry.Registry {
	t.Helper()
	r, err := schemaregistry.New(schemaregistry.Config{
		Client: client.New(cluster, client.Options{}), Compatibility: schemaregistry.None,
		Limits: schemaregistry.Limits{FreshWait: 20 * time.Second}, // an old answer for want of a prompt one is no fault
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// answered is what a register was answered.
type answered struct {
	subject, text string
	version, id   int
}

func enum(i int) string {
	return fmt.Sprintf(`{"type":"enum","name":"E","symbols":["S%d"]}`, i)
}

// Registries on two nodes register the same and different schemas at once, while messages are lost and the node that
// leads the log is killed between an append and its answer: one schema has one id, no id has two, and all that was
// acknowledged is there for whoever reads the log anew.
func TestLeaderIsKilledWhileTwoRegister(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	require.NoError(t, c.Node(1).AwaitBrokers(t.Context(), 3))
	first := startRegistry(t, c.Node(1).Requestor())
	_, err := first.Register(t.Context(), "warm", schemaregistry.RegisterRequest{Content: schema.Content{Text: enum(0)}})
	require.NoError(t, err)
	topic, err := client.New(c.Node(1).Requestor(), client.Options{}).Renew(t.Context(), "_schemas")
	require.NoError(t, err)
	require.Len(t, topic.Partitions[0].Replicas, 3)
	leader := int(topic.Partitions[0].Leader)
	var others []int
	for id := 1; id <= 3; id++ {
		if id != leader {
			others = append(others, id)
		}
	}
	var produced atomic.Int64
	kill := make(chan struct{})
	var clusters []*unreliable
	var registries []*schemaregistry.Registry
	for i, id := range others {
		u := &unreliable{to: c.Node(id).Requestor(), chance: rand.New(rand.NewPCG(uint64(i), 1))}
		u.produced = func() {
			if produced.Add(1) == 20 {
				close(kill)
			}
		}
		clusters, registries = append(clusters, u), append(registries, startRegistry(t, u))
	}
	var killing sync.WaitGroup
	killing.Go(func() {
		<-kill
		_ = c.Node(leader).Kill() // what it says is of no interest to the dead
	})
	got := race(t, registries, 6, 8)
	require.False(t, t.Failed())
	killing.Wait()
	check(t, got)
	require.Positive(t, clusters[0].lost.Load()+clusters[1].lost.Load())

	anew := startRegistry(t, c.Node(others[0]).Requestor())
	require.NoError(t, anew.AwaitRead(t.Context()))
	for _, a := range got {
		v, err := anew.Version(t.Context(), a.subject, fmt.Sprint(a.version), false)
		require.NoError(t, err, "version %d of %s was acknowledged", a.version, a.subject)
		require.Equal(t, a.id, v.ID)
		require.Equal(t, a.text, v.Content.Text)
	}
}

// race has clients register the same and different schemas in the same and different subjects at once.
func race(t *testing.T, registries []*schemaregistry.Registry, clients, schemas int) (out []answered) {
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			r := registries[i%len(registries)]
			for j := range schemas {
				for _, subject := range []string{"shared", fmt.Sprint("own-", i)} {
					a, err := persist(t, r, subject, enum(j+1))
					if err != nil {
						t.Errorf("register %d in %s: %v", j, subject, err)
						return
					}
					mu.Lock()
					out = append(out, a)
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	return out
}

// persist registers, and again while the outcome is not known or the cluster has no leader.
func persist(t *testing.T, r *schemaregistry.Registry, subject, text string) (answered, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		v, err := r.Register(ctx, subject, schemaregistry.RegisterRequest{Content: schema.Content{Text: text}})
		if err == nil {
			return answered{subject, text, v.Version, v.ID}, nil
		}
		if schemaregistry.AsError(err).Status() < 500 || ctx.Err() != nil {
			return answered{}, err
		}
	}
}

func check(t *testing.T, got []answered) {
	t.Helper()
	ids, texts, versions, held := map[int]string{}, map[string]int{}, map[string]string{}, map[string]int{}
	for _, a := range got {
		place := fmt.Sprint(a.subject, "/", a.version)
		ids[a.id] += "|" + a.text
		require.Equal(t, strings.Repeat("|"+a.text, strings.Count(ids[a.id], "|")), ids[a.id], "id %d", a.id)
		versions[place] += "|" + a.text
		require.Equal(t, strings.Repeat("|"+a.text, strings.Count(versions[place], "|")), versions[place], place)
		if was, ok := texts[a.text]; ok {
			require.Equal(t, was, a.id, "schema %s", a.text)
		}
		if was, ok := held[a.subject+a.text]; ok {
			require.Equal(t, was, a.version, "schema %s in %s", a.text, a.subject)
		}
		texts[a.text], held[a.subject+a.text] = a.id, a.version
	}
}

// What one node has acknowledged every other one shows at once, over HTTP, and a restarted one too.
func TestEveryNodeShowsWhatIsAcknowledged(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	for i := range 30 {
		path := fmt.Sprintf("/subjects/s%d/versions", i)
		status, body := ask(t, c, i%3+1, http.MethodPost, path, fmt.Sprintf(`{"schema":%q}`, enum(i)))
		require.Equal(t, http.StatusOK, status, body)
		var made struct{ ID int }
		require.NoError(t, json.Unmarshal([]byte(body), &made))
		require.Equal(t, i+1, made.ID)
		status, body = ask(t, c, (i+1)%3+1, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, "[1]", strings.TrimSpace(body))
		status, body = ask(t, c, (i+2)%3+1, http.MethodGet, fmt.Sprintf("/schemas/ids/%d", made.ID), "")
		require.Equal(t, http.StatusOK, status, body)
	}
	c.Stop(2)
	c.Start(2)
	status, body := ask(t, c, 2, http.MethodGet, "/subjects", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 30, strings.Count(body, `"s`))
}

// ask asks, and again while the cluster has no answer: nothing that is asked for is done twice by that.
func ask(t *testing.T, c *servertest.Cluster, node int, method, path, body string) (status int, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		status, text = askOnce(t, c, node, method, path, body)
		if status < http.StatusInternalServerError || time.Now().After(end) {
			return status, text
		}
		<-time.After(10 * time.Millisecond)
	}
}

func askOnce(t *testing.T, c *servertest.Cluster, node int, method, path, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.URL(node)+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	resp, err := c.Client.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	out, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(out)
}

// A log that would forget what is written takes no schema.
func TestLogMustBeCompacted(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	c := client.New(n.Requestor(), client.Options{MetadataTTL: time.Millisecond})
	_, err := c.CreateTopic(t.Context(), client.NewTopic{Name: "_schemas", Partitions: 1, ReplicationFactor: 1})
	require.NoError(t, err)
	r := startRegistry(t, n.Requestor())
	_, err = r.Register(t.Context(), "s", schemaregistry.RegisterRequest{Content: schema.Content{Text: enum(0)}})
	require.ErrorContains(t, err, "cleanup.policy")
	set := func(policy string) {
		_, err = c.AlterConfigs(t.Context(), []client.ResourceChanges{{
			Resource: client.Resource{Type: client.TopicResource, Name: "_schemas"},
			Changes:  []client.ConfigChange{{Name: "cleanup.policy", Value: &policy}},
		}}, client.Apply)
		require.NoError(t, err)
	}
	set("compact,delete")
	_, err = startRegistry(t, n.Requestor()).Register(t.Context(), "s", schemaregistry.RegisterRequest{
		Content: schema.Content{Text: enum(0)},
	})
	require.ErrorContains(t, err, "compact alone")
	set("compact")
	require.Eventually(t, func() bool {
		_, err = r.Register(t.Context(), "s", schemaregistry.RegisterRequest{Content: schema.Content{Text: enum(0)}})
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}
