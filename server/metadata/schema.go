package metadata

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"
)

//go:generate go test . -run TestDocumentation -update

// ConfigKey is one row of a configuration table.
type ConfigKey struct {
	Name string
	Type kmsg.ConfigType
	// Default is the value when nobody set one, as text. It says nothing when NoDefault is true.
	Default   string
	NoDefault bool
	// Synonyms holds the broker keys that supply the default of a topic key, the first one wins.
	Synonyms []Synonym
	// Update says where a broker key may be changed while the broker runs.
	Update Update
	// Acts is false when this version accepts, keeps and describes the key but does nothing with it.
	Acts bool
	// Hidden keys are described only where they are set.
	Hidden bool
	Doc    string

	check check
	pool  bool // a number of threads, which one change may at most halve or double
}

// Synonym is a broker key that supplies the default of a topic key. Its value times Factor is a
// value of the topic key; Factor 1 takes the text as it is.
type Synonym struct {
	Name   string
	Factor int64
}

// Update says where a broker key may be changed while the broker runs.
type Update int8

// The places where a broker key may be changed.
const (
	StaticOnly  Update = iota // only in the file the broker starts with
	PerBroker                 // for one broker at a time
	ClusterWide               // for one broker, or as the default of all
)

// String returns the name that Kafka's documentation uses.
func (u Update) String() string {
	return [...]string{"read-only", "per-broker", "cluster-wide"}[u]
}

// Description is the text for people, with a warning when the key does not act.
func (k *ConfigKey) Description() string {
	if k.Acts {
		return k.Doc
	}
	return "Not acted on yet: " + k.Doc
}

// Valid says in words what values the key takes; empty when its type says it all.
func (k *ConfigKey) Valid() string { return k.check.says }

// Validate reports whether the text is a value of the key. The error names the key and the value.
func (k *ConfigKey) Validate(text string) error {
	_, err := k.parse(text)
	return err
}

// value is a parsed value; the field of its type is set.
type value struct {
	text string // trimmed
	num  int64
	real float64
	yes  bool
	list []string
}

// check is a rule on the values of a key beyond its type. It is called with values of the right type.
type check struct {
	says string
	test func(value) bool
}

func (k *ConfigKey) parse(text string) (value, error) {
	v := value{text: strings.TrimSpace(text)}
	want := ""
	ok := utf8.ValidString(text) && len(text) <= maxConfigValue
	switch k.Type {
	case kmsg.ConfigTypeBoolean:
		want = "true or false"
		v.yes = strings.EqualFold(v.text, "true")
		ok = v.yes || strings.EqualFold(v.text, "false")
	case kmsg.ConfigTypeShort:
		want = "a 16-bit integer"
		v.num, ok = parseInteger(v.text, 16)
	case kmsg.ConfigTypeInt:
		want = "a 32-bit integer"
		v.num, ok = parseInteger(v.text, 32)
	case kmsg.ConfigTypeLong:
		want = "a 64-bit integer"
		v.num, ok = parseInteger(v.text, 64)
	case kmsg.ConfigTypeDouble:
		want = "a number"
		v.real, ok = parseReal(v.text)
	case kmsg.ConfigTypeList:
		want = fmt.Sprintf("a list of UTF-8 text of at most %d bytes", maxConfigValue)
		v.list = splitList(v.text)
	default:
		want = fmt.Sprintf("UTF-8 text of at most %d bytes", maxConfigValue)
	}
	if !ok {
		return v, fmt.Errorf("invalid value %s for configuration %s: want %s", quoteShort(text), k.Name, want)
	}
	if k.check.test != nil && !k.check.test(v) {
		return v, fmt.Errorf("invalid value %s for configuration %s: want %s", quoteShort(text), k.Name, k.check.says)
	}
	return v, nil
}

// maxConfigValue bounds a value, in bytes.
const maxConfigValue = 32 << 10

// quoteShort quotes a text for a message, without its tail when it is long.
func quoteShort(text string) string {
	const most = 100
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return strconv.Quote(text)
}

func parseInteger(text string, bits int) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, bits)
	return n, err == nil
}

// parseReal reads a decimal number; the hexadecimal and underscored forms of Go are no part of it.
func parseReal(text string) (float64, bool) {
	if strings.ContainsAny(text, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// splitList splits at commas and trims; the empty text is the empty list.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	return parts
}

func atLeast(low int64) check {
	return check{fmt.Sprintf("at least %d", low), func(v value) bool { return v.num >= low }}
}

func between(low, high int64) check {
	return check{fmt.Sprintf("between %d and %d", low, high), func(v value) bool {
		return v.num >= low && v.num <= high
	}}
}

func betweenReal(low, high float64) check {
	return check{fmt.Sprintf("between %g and %g", low, high), func(v value) bool {
		return v.real >= low && v.real <= high
	}}
}

func oneOf(names ...string) check {
	return check{"one of " + strings.Join(names, ", "), func(v value) bool {
		return slices.Contains(names, v.text)
	}}
}

// setOf allows a list of different names.
func setOf(names ...string) check {
	return check{"a list of different names of " + strings.Join(names, ", "), func(v value) bool {
		for i, item := range v.list {
			if !slices.Contains(names, item) || slices.Contains(v.list[:i], item) {
				return false
			}
		}
		return true
	}}
}

// ConfigTable is a table of configuration keys. It never changes.
type ConfigTable struct {
	keys   []*ConfigKey // by name
	byName map[string]*ConfigKey
}

func newConfigTable(groups ...[]ConfigKey) *ConfigTable {
	t := &ConfigTable{byName: make(map[string]*ConfigKey)}
	for _, group := range groups {
		for i := range group {
			k := &group[i]
			t.keys = append(t.keys, k)
			t.byName[k.Name] = k
		}
	}
	slices.SortFunc(t.keys, func(a, b *ConfigKey) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// Keys returns the rows by name.
func (t *ConfigTable) Keys() []*ConfigKey { return slices.Clone(t.keys) }

// Key returns the row of that name, or nil.
func (t *ConfigTable) Key(name string) *ConfigKey { return t.byName[name] }

// Schema is the two tables of configuration keys.
type Schema struct {
	Topic  *ConfigTable
	Broker *ConfigTable
}

// NewSchema makes the tables.
func NewSchema() *Schema {
	topic := [][]ConfigKey{
		topicRetentionKeys(), topicSegmentKeys(), topicMessageKeys(), topicCompactionKeys(), topicReplicationKeys(),
		topicTieredKeys(), topicSchemaKeys(),
	}
	broker := [][]ConfigKey{
		brokerDefaultKeys(topic...), brokerUnitKeys(), brokerTopicKeys(), brokerLimitKeys(), brokerThreadKeys(),
		brokerLogKeys(), brokerCleanerKeys(), brokerReplicationKeys(), brokerControllerKeys(), brokerTransactionKeys(),
		brokerGroupKeys(), brokerShareKeys(), brokerOffsetKeys(), brokerListenerKeys(),
		brokerRegistryKeys(), brokerRESTKeys(), brokerConnectKeys(),
	}
	return &Schema{Topic: newConfigTable(topic...), Broker: newConfigTable(broker...)}
}

// ValidateStatic checks the broker configuration that a node starts with. The error names the first
// bad key by name and its value.
func (s *Schema) ValidateStatic(static map[string]string) error {
	for _, name := range sortedKeys(static) {
		key := s.Broker.Key(name)
		if key == nil {
			return fmt.Errorf("unknown broker configuration %q", name)
		}
		if err := key.Validate(static[name]); err != nil {
			return err
		}
	}
	return s.checkSession(static)
}

// checkSession refuses a session that ends before the next heartbeat.
func (s *Schema) checkSession(static map[string]string) error {
	n := nodeView{schema: s, layers: []layer{{kmsg.ConfigSourceStaticBrokerConfig, static}}}
	r := settingsReader{table: s.Broker, get: n.brokerValue}
	session, heartbeat := r.int("broker.session.timeout.ms"), r.int("broker.heartbeat.interval.ms")
	if session > heartbeat {
		return nil
	}
	return fmt.Errorf("invalid value \"%d\" for configuration broker.session.timeout.ms: it must be more than "+
		"broker.heartbeat.interval.ms, which is %d", session, heartbeat)
}
