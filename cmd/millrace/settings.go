package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"millrace/server"
	"millrace/server/metadata"
)

// settings is what `millrace serve` is told: the node's config, and what only a command decides.
type settings struct {
	server.Config
	LogLevel    string
	LogFormat   string
	GCPercent   int
	MemoryLimit int64
}

func defaultSettings() settings {
	s := settings{Config: server.DefaultConfig(), LogLevel: "info", LogFormat: "auto", GCPercent: 300}
	s.Version, s.Commit = version, commit
	s.Broker = map[string]string{}
	return s
}

// setting is one entry of the table below: the flag --NAME, the YAML key NAME and the variable MILLRACE_NAME.
type setting struct {
	name, value, doc string // value is the default as text
	set              func(s *settings, v string) error
}

// nodeSettings lists every setting that is not a broker setting of Kafka's. docs/running.md holds the same table.
func nodeSettings() []setting {
	return []setting{
		{"listen", "127.0.0.1:8082", "address of the one port, HOST:PORT; port 0 takes a free one",
			func(s *settings, v string) error { s.Listen = v; return nil }},
		{"data-dir", "./data", "folder of the logs and the metadata; made when missing",
			func(s *settings, v string) error { s.DataDir = v; return nil }},
		{"node-id", "1", "this broker's id, from 1; fixed once the data folder exists",
			func(s *settings, v string) error { return setInt32(&s.NodeID, v) }},
		{"voters", "",
			"nodes of the metadata quorum, 1, 3 or 5, ID=URL by commas, the same on all nodes; a node not in it joins too",
			func(s *settings, v string) (err error) { s.Voters, err = server.ParseVoters(v); return err }},
		{"cluster-secret-file", "", "file of the secret that all nodes of a cluster share, at least 16 bytes",
			func(s *settings, v string) (err error) { s.ClusterSecret, err = readSecret(v); return err }},
		{"insecure", "false", "allow an address that other machines can reach, although there is no TLS and no login",
			func(s *settings, v string) error { return setBool(&s.Insecure, v) }},
		{"max-connections", "20000", "connections open at once, up to 3 of 4 files it may open; more wait",
			func(s *settings, v string) error { return setInt(&s.HTTP.MaxConnections, v) }},
		{"cors-origins", "", "web origins whose pages may use the API, such as https://dash.example, by commas",
			func(s *settings, v string) error { s.Origins = splitList(v); return nil }},
		{"trusted-proxies", "", "addresses, such as 10.0.0.0/8, of proxies whose X-Forwarded headers count, by commas",
			func(s *settings, v string) error { return setPrefixes(&s.TrustedProxies, v) }},
		{"drain-timeout", "25s", "how long a stop waits for running requests",
			func(s *settings, v string) error { return setDuration(&s.DrainTimeout, v) }},
		{"log-level", "info", "debug, info, warn or error",
			func(s *settings, v string) error { s.LogLevel = v; return nil }},
		{"log-format", "auto", "text, json, or auto: text on a terminal, else json",
			func(s *settings, v string) error { s.LogFormat = v; return nil }},
		{"gc-percent", "300", "heap growth that starts a garbage collection, in percent, while below memory-limit",
			func(s *settings, v string) error { return setInt(&s.GCPercent, v) }},
		{"memory-limit", "0", "soft limit of the process's memory in bytes, such as 2GiB; 0 is half of the machine's",
			func(s *settings, v string) error { return setBytes(&s.MemoryLimit, v) }},
	}
}

// clientVariables are read by the other commands and mean nothing to serve.
var clientVariables = []string{"URL", "CONFIG", "OUTPUT"}

// apply sets one setting by its name. A name with a dot is a broker setting of Kafka's.
func (s *settings) apply(name, value string) error {
	for _, n := range nodeSettings() {
		if n.name == name {
			if err := n.set(s, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
	}
	if metadata.NewSchema().Broker.Key(name) == nil {
		return errUnknownSetting(name)
	}
	s.Broker[name] = value
	return nil
}

// applyBroker applies what --set gives.
func (s *settings) applyBroker(list []string) error {
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return fmt.Errorf("--set %s: want a setting as NAME=VALUE, for example log.retention.hours=24", kv)
		}
		if err := s.apply(name, value); err != nil {
			return fmt.Errorf("--set %s: %w", kv, err)
		}
	}
	return nil
}

// readFile applies a YAML file: one flat mapping of setting names to values.
func (s *settings) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	var doc map[string]yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("config file %s: %w", name, err)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		n := doc[key]
		if n.Kind != yaml.ScalarNode {
			errs = append(errs, fmt.Errorf("config file %s line %d: %s: want one value", name, n.Line, key))
			continue
		}
		if err := s.apply(key, n.Value); err != nil {
			errs = append(errs, fmt.Errorf("config file %s line %d: %w", name, n.Line, err))
		}
	}
	return errors.Join(errs...)
}

// readEnviron applies the MILLRACE_ variables: MILLRACE_DATA_DIR is data-dir, MILLRACE_LOG_RETENTION_MS is
// log.retention.ms.
func (s *settings) readEnviron(environ []string) error {
	var errs []error
	for _, kv := range environ {
		kv, ok := strings.CutPrefix(kv, "MILLRACE_")
		key, value, ok2 := strings.Cut(kv, "=")
		if !ok || !ok2 || slices.Contains(clientVariables, key) {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		if !slices.ContainsFunc(nodeSettings(), func(n setting) bool { return n.name == name }) {
			name = strings.ToLower(strings.ReplaceAll(key, "_", "."))
		}
		if err := s.apply(name, value); err != nil {
			errs = append(errs, fmt.Errorf("variable MILLRACE_%s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// leastSecret is the shortest secret that is not guessed.
const leastSecret = 16

// readSecret reads the secret of a cluster. Space around it is not part of it, so that an editor may end the line.
func readSecret(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < leastSecret {
		return nil, fmt.Errorf("%s holds %d bytes: want at least %d, for example from `head -c 32 /dev/urandom | base64`",
			name, len(secret), leastSecret)
	}
	return secret, nil
}

// splitList reads a list with commas; nil for an empty one.
func splitList(v string) (out []string) {
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// setPrefixes reads addresses and ranges of them.
func setPrefixes(p *[]netip.Prefix, v string) error {
	*p = nil
	for _, item := range splitList(v) {
		prefix, err := netip.ParsePrefix(item)
		if addr, failed := netip.ParseAddr(item); failed == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return fmt.Errorf("%q is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8", item)
		}
		*p = append(*p, prefix)
	}
	return nil
}

func setInt(p *int, v string) error {
	n, err := strconv.Atoi(strings.ReplaceAll(v, "_", ""))
	if err != nil {
		return fmt.Errorf("%q is not a whole number", v)
	}
	*p = n
	return nil
}

func setInt32(p *int32, v string) error {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of 32 bits", v)
	}
	*p = int32(n)
	return nil
}

func setBool(p *bool, v string) error {
	b, err := strconv.ParseBool(strings.ToLower(v))
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", v)
	}
	*p = b
	return nil
}

func setDuration(p *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 25s", v)
	}
	*p = d
	return nil
}

// setBytes reads 1048576, 512MiB, 2GiB.
func setBytes(p *int64, v string) error {
	text, shift := strings.ToLower(strings.TrimSpace(v)), 0
	for suffix, n := range map[string]int{"kib": 10, "mib": 20, "gib": 30} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, shift = strings.TrimSpace(t), n
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return fmt.Errorf("%q is not a size such as 1048576 or 512MiB", v)
	}
	*p = n << shift
	return nil
}
