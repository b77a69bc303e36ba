package main

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// serveSettings runs the command line as far as its settings.
func serveSettings(t *testing.T, environ []string, args ...string) (settings, error) {
	t.Helper()
	c := &cli{environ: environ}
	cmd := newServe(c)
	var got settings
	var err error
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, _ := cmd.Flags().GetString("config")
		set, _ := cmd.Flags().GetStringArray("set")
		got, err = c.settings(cmd, file, set)
		return nil
	}
	cmd.SetArgs(append([]string{}, args...)) // nil would be those of the test
	require.NoError(t, cmd.Execute())
	return got, err
}

func TestServeNeedsNoSettings(t *testing.T) {
	s, err := serveSettings(t, nil)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8082", s.Listen)
	require.Equal(t, "./data", s.DataDir)
	require.Equal(t, int32(1), s.NodeID)
}

// The table says what the code does when nothing is given.
func TestSettingsTableNamesTheDefaults(t *testing.T) {
	want := defaultSettings()
	for _, n := range nodeSettings() {
		got := defaultSettings()
		require.NoError(t, n.set(&got, n.value), n.name)
		got.Now, want.Now = nil, nil
		require.Equal(t, want, got, n.name)
	}
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	file := writeFile(t, "millrace.yaml", `
listen: 127.0.0.1:1
data-dir: /file
node-id: 7
drain-timeout: 3s
log.retention.hours: 1
num.partitions: 2
log.sync: interval
`)
	environ := []string{
		"MILLRACE_LISTEN=127.0.0.1:2", "MILLRACE_DATA_DIR=/env", "MILLRACE_NUM_PARTITIONS=3", "MILLRACE_LOG_SYNC=never",
		"MILLRACE_URL=http://ignored", "PATH=/bin",
	}
	s, err := serveSettings(t, environ, "--config", file, "--listen", "127.0.0.1:3", "--set", "log.sync=ack")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:3", s.Listen)
	require.Equal(t, "/env", s.DataDir)
	require.Equal(t, int32(7), s.NodeID)
	require.Equal(t, 3*time.Second, s.DrainTimeout)
	require.Equal(t, map[string]string{"log.retention.hours": "1", "num.partitions": "3", "log.sync": "ack"}, s.Broker)

	s, err = serveSettings(t, append(environ, "MILLRACE_CONFIG="+file))
	require.NoError(t, err)
	require.Equal(t, int32(7), s.NodeID)
}

func TestWrongSettingsAreRefusedWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		want    string
	}{
		{"open address", nil, []string{"--listen", "0.0.0.0:8082"}, "give --insecure"},
		{"open address by name", nil, []string{"--listen", "example.org:8082"}, "give --insecure"},
		{"no port", nil, []string{"--listen", "127.0.0.1"}, "want HOST:PORT"},
		{"bad port", nil, []string{"--listen", "127.0.0.1:http2"}, "not a port number"},
		{"node id", nil, []string{"--node-id", "0"}, "must be at least 1"},
		{"not a number", nil, []string{"--node-id", "one"}, `flag --node-id: "one" is not a whole number`},
		{"duration", nil, []string{"--drain-timeout", "25"}, "not a duration"},
		{"misspelt broker setting", nil, []string{"--set", "num.partition=3"},
			`unknown setting "num.partition"; is num.partitions meant?`},
		{"part of a broker setting", nil, []string{"--set", "retention.hours=3"}, "is log.retention.hours meant?"},
		{"no setting at all", nil, []string{"--set", "nope=1"}, `unknown setting "nope"; `},
		{"misspelt node setting", nil, []string{"--set", "data-dri=/x"}, "is data-dir meant?"},
		{"broker setting out of range", nil, []string{"--set", "num.partitions=0"}, "num.partitions"},
		{"set without a value", nil, []string{"--set", "num.partitions"}, "NAME=VALUE"},
		{"misspelt variable", []string{"MILLRACE_DATADIR=/x"}, nil, "MILLRACE_DATADIR"},
		{"any origin", nil, []string{"--cors-origins", "*"}, "name the origins"},
		{"origin with a path", nil, []string{"--cors-origins", "https://a.example/x"}, "cors-origins"},
		{"proxy", nil, []string{"--trusted-proxies", "10.0.0.0/8, proxy"}, `"proxy" is neither`},
		{"advertised", nil, []string{"--set", "advertised.listeners=PLAINTEXT://a:9092"}, "advertised.listeners"},
		{"no such file", nil, []string{"--config", "/does/not/exist.yaml"}, "config file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := serveSettings(t, c.environ, c.args...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestOpenAddressIsAllowedWhenItIsMeant(t *testing.T) {
	_, err := serveSettings(t, nil, "--listen", "0.0.0.0:8082", "--insecure")
	require.NoError(t, err)
	_, err = serveSettings(t, []string{"MILLRACE_INSECURE=true"}, "--listen", ":8082")
	require.NoError(t, err)
}

func TestListsOfOriginsAndProxies(t *testing.T) {
	file := writeFile(t, "millrace.yaml", "cors-origins: https://a.example, http://localhost:3000\n")
	s, err := serveSettings(t, []string{"MILLRACE_TRUSTED_PROXIES=10.0.0.0/8,::1"}, "--config", file)
	require.NoError(t, err)
	require.Equal(t, []string{"https://a.example", "http://localhost:3000"}, s.Origins)
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	require.Equal(t, want, s.TrustedProxies)
}

func TestConfigFileNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"listen: 127.0.0.1:1\nlissten: x\n":   `line 2: unknown setting "lissten"`,
		"num.partitions: [1, 2]\n":            "line 1: num.partitions: want one value",
		"listen: 'unclosed\n":                 "config file",
		"max-connections: many\n":             "line 1: max-connections",
		"insecure: perhaps\n":                 "neither true nor false",
		"memory-limit: 3 parsecs\n":           "not a size",
		"- a list\n- is not what is wanted\n": "config file",
	} {
		_, err := serveSettings(t, nil, "--config", writeFile(t, "bad.yaml", text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "512MiB": 512 << 20, "2 GiB": 2 << 30, "1kib": 1 << 10,
	} {
		var got int64
		require.NoError(t, setBytes(&got, text))
		require.Equal(t, want, got, text)
	}
	var n int64
	require.Error(t, setBytes(&n, "-1"))
	require.Error(t, setBytes(&n, "9999999999999GiB"))
}

func TestDurationsInLogs(t *testing.T) {
	for d, want := range map[time.Duration]string{958745353: "959ms", 61_234_567_890: "1m1.235s", 1_234_567: "1.235ms",
		1500: "1.5µs", 0: "0s", -20 * time.Millisecond: "-20ms"} {
		for format, text := range map[string]string{"json": `"wait":"` + want + `"`, "text": "wait=" + want} {
			var out strings.Builder
			log, err := (&cli{err: &out}).logger(settings{LogLevel: "info", LogFormat: format})
			require.NoError(t, err)
			log.Info("x", "wait", d, slog.Group("g", "n", 5))
			require.Contains(t, out.String(), text)
			require.True(t, format == "text" || json.Valid([]byte(out.String())))
		}
	}
}
