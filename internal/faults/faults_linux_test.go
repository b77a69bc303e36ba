package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	timeEach = flag.Duration("faults.time", 0, "how long to do each kind, on a cluster of its own; 0: a bit of all on one")
	only     = flag.String("faults.only", "", "kinds of faults to do, by commas; all when empty")
	binary   = flag.String("faults.binary", "", "the millrace to test; built from this tree when empty")
	seed     = flag.Uint64("faults.seed", 0, "seed of what is done to whom; 0: another each time")
)

const (
	// inside is set for the run of this test that has namespaces of its own.
	inside = "MILLRACE_FAULTS_INSIDE"
	// shortTime is what each kind gets when all share a cluster.
	shortTime = 2500 * time.Millisecond
	// sessionTimeout of the brokers. It is shorter than by default, so that a short run sees nodes fenced that are frozen
	// or cut off.
	sessionTimeout = 4 * time.Second
)

// allowed is how long something may take that is promised to take no longer than that: where the machine has much else
// to do, as in a run of all tests, it halts for seconds.
func allowed(promised time.Duration) time.Duration {
	if *timeEach == 0 {
		promised += 30 * time.Second
	}
	return promised
}

// A cluster of three processes holds to what it told its clients, whatever is done to one of them, or to two.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes half a minute")
	}
	if os.Getenv(inside) == "" && namespaces(t) {
		again(t)
		return
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	build(t)
	kinds := kindsOf(t)
	if *timeEach == 0 {
		storm(t, shortTime, kinds...)
		return
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { storm(t, *timeEach, k) })
	}
}

// namespaces says whether this process may make namespaces.
func namespaces(t *testing.T) bool {
	if os.Geteuid() != 0 {
		t.Log("not root: no node is cut off or out of disk")
		return false
	}
	for _, tool := range []string{"ip", "bridge", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("no node is cut off or out of disk: %v", err)
			return false
		}
	}
	probe := exec.Command("sh", "-ec", `
		mount --make-rprivate /
		mount -t tmpfs none /run
		ip link add br9 type bridge
		ip netns add n9
		ip link add p9 type veth peer name eth0 netns n9
		ip link set p9 master br9 up
		bridge link set dev p9 state 0`)
	probe.SysProcAttr = isolated()
	if out, err := probe.CombinedOutput(); err != nil {
		t.Logf("no node is cut off or out of disk, since namespaces, bridges or veth are not allowed here: %v: %s", err, out)
		return false
	}
	return true
}

// isolated gives a process a network, mounts and processes of its own, which all end with it.
func isolated() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
}

// again runs this test in namespaces.
func again(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	args := []string{
		"-faults.binary=" + *binary, "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=0",
		fmt.Sprint("-faults.time=", *timeEach), "-faults.only=" + *only, fmt.Sprint("-faults.seed=", *seed),
	}
	ctx := t.Context()
	if at, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at.Add(-time.Second))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = isolated()
	out, err := cmd.CombinedOutput()
	t.Logf("in namespaces:\n%s", out)
	require.NoError(t, err)
}

// build makes the binary under test where none is given. It lasts as long as the test.
func build(t *testing.T) {
	t.Helper()
	if *binary != "" {
		return
	}
	name := filepath.Join(t.TempDir(), "millrace")
	cmd := exec.Command("go", "build", "-trimpath", "-o", name, "millrace/cmd/millrace")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	*binary = name
	t.Cleanup(func() { *binary = "" })
}

// kindsOf are the kinds of faults to do here.
func kindsOf(t *testing.T) (kinds []kind) {
	for _, k := range allKinds() {
		switch {
		case *only != "" && !slices.Contains(strings.Split(*only, ","), k.name):
		case k.isolated && os.Getenv(inside) == "":
			t.Logf("%s is left out: it needs root and namespaces", k.name)
		default:
			kinds = append(kinds, k)
		}
	}
	require.NotEmpty(t, kinds, "no such kind of fault")
	return kinds
}

// storm does faults of some kinds to a cluster under load, one kind after the other, and checks what comes of it.
func storm(t *testing.T, each time.Duration, kinds ...kind) {
	c := startCluster(t)
	l := startLoad(t, c)
	n := &nemesis{t: t, cluster: c, load: l, rand: rand.New(rand.NewPCG(*seed, 1)), each: each}
	for _, k := range kinds {
		start, before := time.Now(), l.acked.Load()
		for done := false; !done; done = time.Since(start) >= each || t.Failed() {
			k.do(n)
			n.heal()
		}
		t.Logf("%-8s %d faults in %v, %d requests acknowledged meanwhile", k.name, n.count,
			time.Since(start).Round(time.Millisecond), l.acked.Load()-before)
		n.count = 0
	}
	n.report()
	l.check()
}
