package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// compose is what docker-compose.yml says of the services.
type compose struct {
	Services map[string]composeService
	Configs  map[string]struct{ Content string }
	Volumes  map[string]any
}

type composeService struct {
	Profiles    []string
	Build       struct{ Context, Target string }
	Image       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Configs     []struct{ Source, Target string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct{ Test []string }
}

func readCompose(t *testing.T) (doc compose) {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	// What the environment may set has the value that it has without.
	text = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAll(text, []byte("$1"))
	require.NoError(t, yaml.Unmarshal(text, &doc))
	return doc
}

// The nodes of docker-compose.yml are started with settings that exist and that make them one cluster.
func TestCompose(t *testing.T) {
	doc := readCompose(t)
	require.Len(t, doc.Services, 5)
	ids, ports, voters := map[int32]string{}, map[string]bool{}, ""
	for name, service := range doc.Services {
		if service.Profiles != nil {
			continue // TestComposePipeline
		}
		require.Equal(t, ".", service.Build.Context, name)
		require.Equal(t, "millrace", service.Build.Target, name)
		s := defaultSettings()
		require.Len(t, service.Configs, 1, name)
		secret := service.Configs[0]
		require.Contains(t, doc.Configs, secret.Source, name)
		require.Equal(t, secret.Target, service.Environment["MILLRACE_CLUSTER_SECRET_FILE"], name)
		// The file is where only the container has it: the content stands in for it.
		content := t.TempDir() + "/secret"
		require.NoError(t, os.WriteFile(content, []byte(doc.Configs[secret.Source].Content), 0o600))
		service.Environment["MILLRACE_CLUSTER_SECRET_FILE"] = content
		var environ []string
		for _, k := range slices.Sorted(maps.Keys(service.Environment)) {
			if strings.HasPrefix(k, "MILLRACE_") {
				environ = append(environ, k+"="+service.Environment[k])
			}
		}
		require.NoError(t, s.readEnviron(environ), name)
		require.NoError(t, s.Validate(), name)

		require.NotContains(t, ids, s.NodeID, name)
		ids[s.NodeID] = name
		require.True(t, voters == "" || voters == service.Environment["MILLRACE_VOTERS"], "%s has other voters", name)
		voters = service.Environment["MILLRACE_VOTERS"]
		require.Equal(t, "3", s.Broker["default.replication.factor"], name)
		require.Equal(t, "2", s.Broker["min.insync.replicas"], name)
		require.Equal(t, []string{name + ":" + s.DataDir}, service.Volumes)
		require.Contains(t, doc.Volumes, name)

		require.Len(t, service.Ports, 1, name)
		outside, inside, ok := cutLast(service.Ports[0])
		require.True(t, ok, name)
		address := netip.MustParseAddrPort(outside)
		require.True(t, address.Addr().IsLoopback(), "%s is open to other machines", name)
		require.True(t, strings.HasSuffix(s.Listen, ":"+inside), name)
		require.False(t, ports[outside], name)
		ports[outside] = true
	}
	require.Len(t, ids, 3)
	for id, name := range ids {
		require.Contains(t, strings.Split(voters, ","), fmt.Sprintf("%d=http://%s:8082", id, name))
	}
}

// What docker-compose.yml starts for examples/postgres-pipeline fits together: the demo's configs find all that they
// refer to in the nodes' environment, and that is where the demo's own databases are.
func TestComposePipeline(t *testing.T) {
	doc := readCompose(t)
	database, demo := doc.Services["postgres"], doc.Services["pipeline"]
	for _, service := range []composeService{database, demo} {
		require.Equal(t, []string{"pipeline"}, service.Profiles, "it starts where nobody asked for it")
		require.Empty(t, service.Ports, "it is open to other machines")
	}
	require.Contains(t, database.Command, "wal_level=logical")
	require.NotEmpty(t, database.Healthcheck.Test)
	password := database.Environment["POSTGRES_PASSWORD"]
	require.NotEmpty(t, password)
	require.Len(t, database.Configs, 1)
	require.Contains(t, doc.Configs[database.Configs[0].Source].Content, "CREATE DATABASE warehouse")
	require.Equal(t, "shop", database.Environment["POSTGRES_DB"])

	needs := map[string]bool{}
	for _, name := range []string{"source", "sink"} {
		config, err := os.ReadFile("../../examples/postgres-pipeline/" + name + ".json")
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\$\{env:([^}]*)\}`).FindAllStringSubmatch(string(config), -1) {
			needs[m[1]] = true
		}
	}
	require.Len(t, needs, 10)
	nodes := 0
	for name, service := range doc.Services {
		if service.Profiles != nil {
			continue
		}
		nodes++
		allowed := service.Environment["MILLRACE_CONNECT_CONFIG_PROVIDERS_ENV_ALLOWLIST_PATTERN"]
		for need := range needs {
			require.Regexp(t, "^(?:"+allowed+")$", need)
			require.NotEmpty(t, service.Environment[need], "%s lacks %s", name, need)
		}
		for _, db := range []string{"shop", "warehouse"} {
			part := func(of string) string { return service.Environment["PIPELINE_"+strings.ToUpper(db)+"_"+of] }
			require.Equal(t, demo.Environment[strings.ToUpper(db)+"_URL"], fmt.Sprintf("postgres://%s:%s@%s:%s/%s",
				part("USER"), part("PASSWORD"), part("HOST"), part("PORT"), part("DATABASE")))
			require.Equal(t, db, part("DATABASE"))
			require.Equal(t, password, part("PASSWORD"))
			require.Contains(t, doc.Services, part("HOST"))
		}
		require.Equal(t, "service_healthy", demo.DependsOn[name].Condition)
	}
	require.Equal(t, 3, nodes)
	require.Equal(t, "service_healthy", demo.DependsOn["postgres"].Condition)
	node, _, _ := strings.Cut(strings.TrimPrefix(demo.Environment["MILLRACE_URL"], "http://"), ":")
	require.Contains(t, doc.Services, node)

	docker, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	stages := regexp.MustCompile(`(?m)^FROM (\S+) AS (\S+)$`).FindAllStringSubmatch(string(docker), -1)
	require.Equal(t, "millrace", stages[len(stages)-1][2], "it is what `docker build .` makes")
	require.Contains(t, string(docker), "FROM "+database.Image+" AS "+demo.Build.Target+"\n")
	require.Contains(t, string(docker), `ENTRYPOINT ["/pipeline/pipeline.sh"]`)
	info, err := os.Stat("../../examples/postgres-pipeline/pipeline.sh")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o111, "it is not executable")
}

// cutLast cuts a text around its last colon.
func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

// The image is built as `make build` builds, of the Go release that go.mod asks for, and runs what it says.
func TestDockerfile(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		return string(text)
	}
	// What is left of a build line without what stands for the version and the output is the same.
	canonical := func(line string) string {
		line = strings.ReplaceAll(strings.ReplaceAll(line, "\\\n", " "), "'", `"`)
		line = regexp.MustCompile(`\$\(?([A-Z]+)\)?`).ReplaceAllString(line, "<$1>")
		line = regexp.MustCompile(`-o \S+`).ReplaceAllString(line, "-o FILE")
		return strings.Join(strings.Fields(line), " ")
	}
	docker, makefile := read("Dockerfile"), read("Makefile")
	flags := regexp.MustCompile(`(?m)^LDFLAGS *= *(.*)$`).FindStringSubmatch(makefile)
	made := regexp.MustCompile(`(?m)^\t(CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(makefile)
	built := regexp.MustCompile(`(?s)RUN (CGO_ENABLED=0 go build .*?) &&`).FindStringSubmatch(docker)
	require.NotNil(t, flags)
	require.NotNil(t, made)
	require.NotNil(t, built)
	require.Equal(t, canonical(strings.ReplaceAll(made[1], "$(LDFLAGS)", flags[1])), canonical(built[1]))

	release := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read("go.mod"))
	require.NotNil(t, release)
	require.Contains(t, docker, "FROM golang:"+release[1]+" ")
	require.Contains(t, docker, "\nFROM scratch AS millrace\n")
	user := regexp.MustCompile(`(?m)^USER ((\d+):\d+)$`).FindStringSubmatch(docker)
	require.NotNil(t, user)
	require.NotEmpty(t, strings.TrimLeft(user[2], "0"), "it runs as root")
	require.Contains(t, docker, "--chown="+user[1]+" ")

	// The command and the health check are ones that the binary knows.
	words := func(of string) []string {
		list := regexp.MustCompile(`(?m)^` + of + ` \[(.*)\]$`).FindStringSubmatch(docker)
		require.NotNil(t, list, of)
		return strings.Split(strings.ReplaceAll(list[1], `"`, ""), ", ")
	}
	c := &cli{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	root := newRoot(c)
	for _, args := range [][]string{words("CMD"), words("HEALTHCHECK .*CMD")[1:]} {
		cmd, rest, err := root.Find(args)
		require.NoError(t, err)
		require.Equal(t, args[0], cmd.Name())
		require.NoError(t, cmd.ParseFlags(rest), "%s", args)
	}
}
