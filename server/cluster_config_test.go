package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/peer"
	"millrace/server/quorum"
	"millrace/server/servertest"
)

// Every mistake in the settings of a cluster is refused before anything is done, with what to do about it.
func TestClusterConfigMistakes(t *testing.T) {
	three := func() []quorum.Voter {
		return []quorum.Voter{
			{ID: 1, Address: "http://h1:8082"}, {ID: 2, Address: "http://h2:8082"}, {ID: 3, Address: "http://h3:8082"},
		}
	}
	cases := map[string]struct {
		change func(c *server.Config)
		want   []string
	}{
		"an even number": {func(c *server.Config) { c.Voters = c.Voters[:2] },
			[]string{"2 given", "want 1, 3 or 5", "further nodes join without a vote"}},
		"too many": {func(c *server.Config) {
			for id := int32(4); id <= 7; id++ {
				c.Voters = append(c.Voters, quorum.Voter{ID: id, Address: fmt.Sprintf("http://h%d:8082", id)})
			}
		}, []string{"7 given", "want 1, 3 or 5"}},
		"an id twice": {func(c *server.Config) { c.Voters[2].ID = 2 }, []string{"voters: node 2 is there twice"}},
		"an address twice": {func(c *server.Config) { c.Voters[2].Address = "http://h2:8082" },
			[]string{"http://h2:8082 is there twice"}},
		"no id": {func(c *server.Config) { c.Voters[2].ID = 0 }, []string{"node id 0", "at least 1"}},
		"https": {func(c *server.Config) { c.Voters[2].Address = "https://h3:8082" },
			[]string{"do not speak TLS", "want http://h3:8082"}},
		"a path": {func(c *server.Config) { c.Voters[2].Address = "http://h3:8082/x" },
			[]string{"base URL of a node"}},
		"no host": {func(c *server.Config) { c.Voters[2].Address = "http://:8082" }, []string{"base URL of a node"}},
		"a secret alone": {func(c *server.Config) { c.Voters, c.ClusterSecret = nil, []byte(labSecret) },
			[]string{"cluster-secret-file", "give --voters as well"}},
		"an address that names no machine": {func(c *server.Config) {
			c.NodeID, c.Listen, c.Insecure, c.ClusterSecret = 4, "0.0.0.0:0", true, []byte(labSecret)
		}, []string{"listens on all addresses", "--set advertised.listeners=http://node4.example:8082"}},
		"no secret where others can reach it": {func(c *server.Config) { c.Listen, c.Insecure = "0.0.0.0:0", true },
			[]string{"without a secret anybody could pose as a node", "--cluster-secret-file", "head -c 32 /dev/urandom"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := server.DefaultConfig()
			cfg.Listen, cfg.DataDir, cfg.Voters = "127.0.0.1:0", t.TempDir(), three()
			tc.change(&cfg)
			_, err := server.Open(cfg)
			require.Error(t, err)
			for _, w := range tc.want {
				require.ErrorContains(t, err, w)
			}
			require.NotContains(t, err.Error(), labSecret)
		})
	}
}

func TestParseVoters(t *testing.T) {
	voters, err := server.ParseVoters(" 1=http://h1:8082/ , 2=http://h2:8082,")
	require.NoError(t, err)
	require.Equal(t, []quorum.Voter{{ID: 1, Address: "http://h1:8082"}, {ID: 2, Address: "http://h2:8082"}}, voters)
	for _, text := range []string{"http://h1:8082", "x=http://h1:8082", "1=h1:8082", "1=http://",
		"9999999999=http://h:1"} {
		_, err := server.ParseVoters(text)
		require.ErrorContains(t, err, "http://node1.example:8082", text)
	}
}

// Two processes on one data directory: the second says so and leaves the first alone.
func TestClusterOneDirectoryTwice(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.Listen, cfg.DataDir = 2, "127.0.0.1:0", c.Dir(2)
	for id := range 3 {
		cfg.Voters = append(cfg.Voters, quorum.Voter{ID: int32(id + 1), Address: c.URL(id + 1)})
	}
	_, err := server.Open(cfg)
	require.ErrorContains(t, err, c.Dir(2))
	require.ErrorContains(t, err, "another process: stop that one, or give another --data-dir")
	c.AwaitReady()
}

// A node that was started without --voters keeps those waiting that name it.
func TestClusterVoterWithoutVoters(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.boxes[2].change = func(c *server.Config) { c.Voters, c.ClusterSecret, c.Insecure = nil, nil, true }
		l.start(1, 2)
		l.waiting(1, "node 2 at http://n2:8082: it does not take this node's credential", "is a cluster by itself",
			"start it with their --voters and --cluster-secret-file")
	})
}

// Nothing under /internal/ answers anything to anybody without the credential, whatever is asked, and nothing of the
// public API is reached through it.
func TestClusterInternalPaths(t *testing.T) {
	secret := []byte(labSecret)
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(c *server.Config) { c.ClusterSecret = secret }})
	right := make(http.Header)
	peer.NewCredential(secret).Set(right)
	token := right.Get("Authorization")
	wrong := []string{
		"", "Bearer x", token + "x", token[:len(token)-1], strings.ToLower(token), "Millrace-Cluster " + labSecret,
		"Basic " + strings.TrimPrefix(token, "Millrace-Cluster "),
	}
	paths := []string{"/internal/", "/internal/raft", "/internal/node", "/internal/membership", "/internal/kafka/0",
		"/internal/kafka/1", "/internal/kafka/63", "/internal/kafka/x", "/internal/nothing", "/internal/../v1/topics",
		"/internal/raft/", "/internal//raft"}
	var first string
	for _, path := range paths {
		methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "X"}
		for _, method := range methods {
			for _, auth := range wrong {
				status, body := raw(t, c.URL(1), method, path, auth)
				require.Equal(t, http.StatusUnauthorized, status, "%s %s %q", method, path, auth)
				if method == "HEAD" {
					continue
				}
				if first == "" {
					first = body
				}
				require.Equal(t, first, body, "%s %s tells something", method, path)
			}
		}
		status, _ := raw(t, c.URL(1), "PUT", path, token)
		require.NotEqual(t, http.StatusUnauthorized, status, path)
	}
	require.Contains(t, first, "--cluster-secret-file")
	// Two of them are none, and neither do users get in by it.
	for _, path := range []string{"//internal/node", "/Internal/node", "/%69nternal/../internal/node",
		"/v1/../internal/x"} {
		status, body := raw(t, c.URL(1), "GET", path, "")
		require.GreaterOrEqual(t, status, 400, path)
		require.NotContains(t, body, "node_id", path)
	}
}

// raw sends a request with a path as it is.
func raw(t *testing.T, base, method, path, auth string) (int, string) {
	t.Helper()
	u, err := url.Parse(base)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	defer conn.Close()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n", method, path, u.Host)
	if auth != "" {
		head += "Authorization: " + auth + "\r\n"
	}
	_, err = io.WriteString(conn, head+"\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	var status int
	_, err = fmt.Sscanf(string(answer), "HTTP/1.1 %d", &status)
	require.NoError(t, err, "%s", answer)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return status, body
}

// The secret of a cluster, and what is made of it, shows in no log, metric, answer or file.
func TestClusterSecretShowsNowhere(t *testing.T) {
	head := make(http.Header)
	peer.NewCredential([]byte(labSecret)).Set(head)
	token := strings.TrimPrefix(head.Get("Authorization"), "Millrace-Cluster ")
	clean := func(t *testing.T, what, text string) {
		t.Helper()
		require.NotContains(t, text, labSecret, what)
		require.NotContains(t, text, token, what)
	}
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.boxes[3].stop()
		l.boxes[3].change = func(c *server.Config) { c.ClusterSecret = []byte("another secret than the others have") }
		l.start(3)
		l.waiting(3, "does not take this node's credential")
		for _, id := range []int32{1, 2, 3} {
			for _, path := range []string{
				"/metrics", "/health/ready", "/v1/cluster", "/v1/cluster/members", "/v1/cluster/brokers", "/v1/cluster/health",
				"/internal/node", "/v3/clusters", "/v1/topics/absent",
			} {
				_, text := l.do(id, http.MethodGet, path, "")
				clean(t, path, text)
				require.NotContains(t, text, "another secret than", path)
			}
			b := l.boxes[id]
			clean(t, "log", b.logs.String())
			require.NotContains(t, b.logs.String(), "another secret than")
			for _, name := range b.disk.Files() {
				text, err := b.disk.ReadFile(name)
				require.NoError(t, err)
				clean(t, name, string(text))
			}
			cfg := server.Config{ClusterSecret: []byte(labSecret)}
			clean(t, "configuration", fmt.Sprintf("%v", cfg.Validate()))
		}
	})
}
