package tidy

import (
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// side says which column of the import diagram a package stands in. The columns meet only in server and below both.
type side int

const (
	middle side = iota // cmd, server; record, invariant, ktag
	users              // knows the cluster only as a kmsg.Requestor
	cluster
)

// place is a package's column and row; a package imports only from a lower row, never across the gap.
type place struct {
	side side
	row  int
}

// places is the import diagram of ARCHITECTURE.md. A package whose folder is not listed takes the place of its nearest
// listed parent, so that api/native stands where api/* says.
var places = map[string]place{
	"cmd":               {middle, 100},
	"internal/faults":   {middle, 100},
	"internal/load":     {middle, 100},
	"internal/tidy":     {middle, 100},
	"server/servertest": {middle, 95},
	"server":            {middle, 90},

	"server/servertest/history": {middle, 5},
	"server/servertest/memnet":  {middle, 5},

	"api/*":          {users, 80},
	"api":            {users, 79},
	"schemaregistry": {users, 70},
	"connect":        {users, 75},
	"consumer":       {users, 65},
	"client":         {users, 60},

	"schemaregistry/serde":      {users, 71},
	"schemaregistry/avro":       {users, 68},
	"schemaregistry/jsonschema": {users, 68},
	"schemaregistry/protobuf":   {users, 68},
	"schemaregistry/schema":     {users, 66},
	"client/statetopic":         {users, 61},
	"api/rawjson":               {users, 59},

	"connect/task":       {users, 74},
	"connect/store":      {users, 73},
	"connect/convert":    {users, 72},
	"connect/transform":  {users, 73},
	"connect/postgres/*": {users, 66},
	"connect/postgres":   {users, 65},
	"connect/plugin":     {users, 62},
	"connect/data":       {users, 61},
	"connect/provider":   {users, 61},
	"migrations":         {middle, 5},

	"server/broker":      {cluster, 80},
	"server/coordinator": {cluster, 75},
	"server/txn":         {cluster, 80},
	"server/group":       {cluster, 80},
	"server/controller":  {cluster, 80},
	"server/route":       {cluster, 80},
	"server/peer":        {cluster, 80},
	"server/partition":   {cluster, 70},
	"server/quorum":      {cluster, 70},

	"storage/storagetest": {cluster, 65},
	"server/metadata":     {cluster, 60},
	"storage":             {cluster, 60},

	"internal/ktag":      {middle, 11},
	"":                   {middle, 10},
	"record":             {middle, 10},
	"internal/invariant": {middle, 0},
}

func placeOf(dir string) (place, bool) {
	if p, ok := places[dir]; ok {
		return p, true
	}
	for d := dir; d != "." && d != "/"; d = path.Dir(d) {
		if p, ok := places[path.Dir(d)+"/*"]; ok {
			return p, true
		}
		if p, ok := places[path.Dir(d)]; ok {
			return p, true
		}
	}
	return place{}, false
}

// once reads the source for all tests of the package; none of them changes it.
var once = sync.OnceValues(Load)

func load(t *testing.T) *Tree {
	t.Helper()
	tree, err := once()
	require.NoError(t, err)
	return tree
}

// eachImport calls fn with every import of every file, ours without the module's name and with ours set.
func (t *Tree) eachImport(fn func(f *File, pos, imp string, ours bool)) {
	for _, f := range t.Files {
		for _, s := range f.AST.Imports {
			imp, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				continue
			}
			rest, ours := strings.CutPrefix(imp, Module+"/")
			fn(f, t.Pos(f, s.Pos()), rest, ours)
		}
	}
}

// A package imports only from a row below, never from the other column; tests may use servertest and storagetest from
// anywhere.
func TestImportRows(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if !ours || f.Dir == imp {
			return
		}
		from, ok := placeOf(f.Dir)
		if !ok {
			t.Errorf("%s: folder %s has no place in the import diagram: give it one here and in ARCHITECTURE.md", pos, f.Dir)
			return
		}
		to, ok := placeOf(imp)
		if !ok {
			t.Errorf("%s: imports %s, which has no place in the import diagram", pos, imp)
			return
		}
		if strings.HasSuffix(imp, "test") || within(imp, "server/servertest") {
			if !f.TestOnly() && !f.Main() {
				t.Errorf("%s: imports %s, which only tests may", pos, imp)
			}
			return
		}
		if f.Test && to.side != users && from.side != users {
			return // a test beside the core may reach further down or up its own column
		}
		if from.row <= to.row {
			t.Errorf("%s: %s imports %s, which does not stand below it", pos, f.Dir, imp)
		}
		if from.side != to.side && from.side != middle && to.side != middle {
			t.Errorf("%s: %s imports %s across the gap between the cluster and its users", pos, f.Dir, imp)
		}
	})
}

func within(dir string, roots ...string) bool {
	for _, r := range roots {
		if dir == r || strings.HasPrefix(dir, r+"/") {
			return true
		}
	}
	return false
}

// Rule 1: a log is testable and readable with no broker in mind.
func TestStorageKnowsNoBroker(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if !within(f.Dir, "storage") || f.Test {
			return
		}
		if ours && !within(imp, "storage", "record", "internal/invariant") {
			t.Errorf("%s: storage imports of ours only record and internal/invariant, not %s", pos, imp)
		}
		if !ours && (within(imp, "github.com/twmb/franz-go") || within(imp, "net/http")) {
			t.Errorf("%s: storage never imports %s", pos, imp)
		}
	})
}

// Rule 2: the users of the cluster also run on kfake or on a foreign Kafka.
func TestUsersKnowOnlyTheRequestor(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if !ours || !within(f.Dir, "api", "client", "consumer", "schemaregistry", "connect") {
			return
		}
		if f.Test && within(imp, "server/servertest") {
			return
		}
		if within(imp, "server", "storage") {
			t.Errorf("%s: %s imports %s; it may know the cluster only as a kmsg.Requestor", pos, f.Dir, imp)
		}
	})
}

// Rule 4: one owner for each file on disk. cmd/millrace reads segments of a stopped node for `millrace log`.
func TestOwnersOfFilesOnDisk(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if !ours || !within(imp, "storage") || f.TestOnly() {
			return
		}
		if !within(f.Dir, "storage", "server/partition", "server/quorum", "cmd/millrace") && f.Dir != "server" {
			t.Errorf("%s: %s imports %s; only server/partition and server/quorum own files on disk", pos, f.Dir, imp)
		}
	})
}

// Rule 5: the core is tested without a network.
func TestNetHTTPStaysAtTheEdge(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if ours || !within(imp, "net/http") || f.TestOnly() || f.Main() {
			return
		}
		if !within(f.Dir, "api", "server/peer", "server/quorum", "connect") && f.Dir != "server" {
			t.Errorf("%s: %s imports %s; net/http belongs to the edge", pos, f.Dir, imp)
		}
	})
}

// Rule 6, the imports: everything but a command runs many times in one test process.
func TestOnlyCommandsReadTheProcess(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if ours || f.TestOnly() || f.Main() {
			return
		}
		for _, bad := range []string{"flag", "os/signal", "github.com/spf13/cobra", "github.com/spf13/pflag"} {
			if imp == bad {
				t.Errorf("%s: %s imports %s; only a command reads flags and signals", pos, f.Dir, imp)
			}
		}
	})
}

// Rule 7: what only tests may link.
func TestTestLibrariesStayInTests(t *testing.T) {
	only := []string{
		"testing", "net/http/httptest", "github.com/cockroachdb", "github.com/stretchr/testify", "go.uber.org/goleak",
		"pgregory.net/rapid", "github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "github.com/getkin/kin-openapi",
		"github.com/twmb/franz-go/pkg/kfake", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kadm",
	}
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if ours || f.TestOnly() || f.Generated {
			return
		}
		if within(imp, only...) {
			t.Errorf("%s: %s imports %s outside a test", pos, f.Dir, imp)
		}
	})
}

// Rule 3, the imports: what Raft and tests replay does no I/O.
func TestPurePackagesDoNoIO(t *testing.T) {
	tree := load(t)
	tree.eachImport(func(f *File, pos, imp string, ours bool) {
		if f.Test || !within(f.Dir, "record", "server/metadata", "internal/ktag") || ours {
			return
		}
		if within(imp, "os", "net", "io/ioutil", "io/fs", "log", "log/slog", "syscall", "github.com/prometheus") {
			t.Errorf("%s: %s is pure and may not import %s", pos, f.Dir, imp)
		}
	})
}
