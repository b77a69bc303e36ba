package restv2

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/consumer"
)

// Limits of an instance's configuration.
const (
	maxMinBytes = 10_000_000
	maxWait     = 30 * time.Second // of a read, whatever the instance says
)

// settings are what an instance is beyond a member of a group. They are kept with the member.
type settings struct {
	API      string `json:"api"` // tells an instance from other members
	Format   string `json:"format"`
	WaitMs   int64  `json:"wait_ms"`   // of a read
	MinBytes int64  `json:"min_bytes"` // that a read waits for; below 2 it waits for the first record
}

const settingsAPI = "v2"

func (s *settings) encode() []byte {
	b, _ := json.Marshal(s) // it has no value that JSON lacks
	return b
}

func decodeSettings(extra []byte) (*settings, bool) {
	s := &settings{}
	if len(extra) == 0 || json.Unmarshal(extra, s) != nil || s.API != settingsAPI {
		return nil, false
	}
	return s, true
}

// wait is how long a read of the instance waits; asked is what the request says in milliseconds.
func (s *settings) wait(asked int64) time.Duration {
	ms := s.WaitMs
	if asked > 0 {
		ms = min(ms, asked)
	}
	return time.Duration(ms) * time.Millisecond
}

// createRequest is the body that creates an instance.
type createRequest struct {
	ID               *string         `json:"id"`
	Name             *string         `json:"name"`
	Format           *string         `json:"format"`
	Reset            *string         `json:"auto.offset.reset"`
	AutoCommit       json.RawMessage `json:"auto.commit.enable"`
	MinBytes         json.RawMessage `json:"fetch.min.bytes"`
	ResponseMinBytes json.RawMessage `json:"responseMinBytes"`
	Timeout          json.RawMessage `json:"consumer.request.timeout.ms"`
	RequestWait      json.RawMessage `json:"requestWaitMs"`
}

func badConfig(format string, args ...any) error {
	return api.RefuseCompat(codeInvalidConfig, "Invalid consumer configuration: "+format, args...)
}

// newInstance is the member that a request to create an instance asks for.
func (c *call) newInstance() (consumer.Config, error) {
	var q createRequest
	if c.body != nil {
		if err := api.Decode(c.body, &q); err != nil {
			return consumer.Config{}, err
		}
	}
	s := settings{API: settingsAPI, WaitMs: c.opts.RequestTimeout.Milliseconds(), MinBytes: c.opts.FetchMinBytes}
	config := consumer.Config{
		Lease: c.opts.InstanceTimeout, AutoCommit: true, Rejoin: true, Isolation: client.ReadCommitted,
	}
	for _, read := range []func() error{
		func() (err error) { config.ID, err = q.name(); return err },
		func() (err error) { s.Format, err = q.format(c.opts.Serde != nil); return err },
		func() (err error) { config.Reset, err = q.reset(); return err },
		func() error { return readBool(&config.AutoCommit, q.AutoCommit) },
		func() error { return q.minBytes(&s.MinBytes) },
		func() error { return q.timeout(&s.WaitMs) },
	} {
		if err := read(); err != nil {
			return consumer.Config{}, err
		}
	}
	// Where the instance begins is held fast: else one that begins at the end would skip what came while it moved.
	config.PinStart = config.AutoCommit
	config.Extra = s.encode()
	return config, nil
}

// name is the instance's id, "" if the server is to choose.
func (q *createRequest) name() (string, error) {
	name := q.Name
	if q.ID != nil {
		name = q.ID
	}
	switch {
	case name == nil:
		return "", nil
	case *name == "", *name == ".", *name == "..", len(*name) > consumer.MaxID, !utf8.ValidString(*name):
		return "", badConfig("an instance's name has 1 to %d bytes and is not . or ..", consumer.MaxID)
	}
	return *name, nil
}

// format is the format of keys and values; schemas says that there is a registry.
func (q *createRequest) format(schemas bool) (string, error) {
	if q.Format == nil {
		return "binary", nil
	}
	switch f := strings.ToLower(*q.Format); {
	case f == "binary", f == "json", isSchemaFormat(f) && schemas:
		return f, nil
	case isSchemaFormat(f):
		return "", errNoRegistry(f)
	default:
		return "", unprocessable("Invalid format type. Use binary, json, avro, jsonschema or protobuf.")
	}
}

// isSchemaFormat says whether data of a format have schemas.
func isSchemaFormat(f string) bool { return f == "avro" || f == "jsonschema" || f == "protobuf" }

func errNoRegistry(format string) error {
	return unprocessable("Format %s needs a schema registry, and there is none; use binary or json.", format)
}

func (q *createRequest) reset() (consumer.Reset, error) {
	if q.Reset == nil {
		return consumer.Latest, nil
	}
	switch *q.Reset {
	case "latest":
		return consumer.Latest, nil
	case "earliest":
		return consumer.Earliest, nil
	case "none":
		return consumer.None, nil
	}
	return 0, badConfig("auto.offset.reset is earliest, latest or none, not %s", rawjson.Excerpt([]byte(*q.Reset)))
}

func (q *createRequest) minBytes(to *int64) error {
	const name = "fetch.min.bytes"
	for _, v := range []json.RawMessage{q.ResponseMinBytes, q.MinBytes} {
		n, given, ok := readNumber(v)
		switch {
		case !ok, given && (n < -1 || n > maxMinBytes):
			return api.RefuseCompat(codeConfigRange, "Invalid consumer configuration: %s is a whole number from -1 to %d.",
				name, maxMinBytes)
		case given:
			*to = n
		}
	}
	return nil
}

func (q *createRequest) timeout(to *int64) error {
	for _, v := range []json.RawMessage{q.RequestWait, q.Timeout} {
		n, given, ok := readNumber(v)
		switch {
		case !ok, given && n < 0:
			return badConfig("consumer.request.timeout.ms is a whole number of milliseconds, 0 or more")
		case given:
			*to = min(n, maxWait.Milliseconds())
		}
	}
	return nil
}

// readNumber reads a whole number, which may be in a string, as configurations have it.
func readNumber(value []byte) (n int64, given, ok bool) {
	if len(value) == 0 || rawjson.IsNull(value) {
		return 0, false, true
	}
	if text, isText := rawjson.Text(value); isText {
		value = text
	}
	n, ok = rawjson.Int64(value)
	return n, true, ok
}

// readBool reads a boolean, which may be in a string.
func readBool(to *bool, value []byte) error {
	if len(value) == 0 || rawjson.IsNull(value) {
		return nil
	}
	text := value
	if t, ok := rawjson.Text(value); ok {
		text = t
	}
	switch strings.ToLower(string(text)) {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return badConfig("auto.commit.enable is true or false, not %s", rawjson.Excerpt(value))
	}
	return nil
}

// readMillis reads a number of the query; what is not there is 0.
func readMillis(name, value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, badRequest("%s=%s is not a whole number.", name, rawjson.Excerpt([]byte(value)))
	}
	return n, nil
}
