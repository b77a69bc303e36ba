package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

var errNoServer = errors.New("no PostgreSQL server is installed here")

// Defaults suit tests: whoever wants durability asks for it.
var defaults = map[string]string{
	"listen_addresses":                "127.0.0.1",
	"wal_level":                       "logical",
	"max_wal_senders":                 "20",
	"max_replication_slots":           "20",
	"max_connections":                 "200",
	"max_prepared_transactions":       "10",
	"wal_sender_timeout":              "10s",
	"password_encryption":             "scram-sha-256",
	"shared_buffers":                  "64MB",
	"max_wal_size":                    "4GB",
	"log_min_messages":                "warning",
	"autovacuum_naptime":              "10min",
	"checkpoint_timeout":              "30min",
	"shared_preload_libraries":        "",
	"unix_socket_directories":         "",
	"restart_after_crash":             "on",
	"logical_decoding_work_mem":       "64MB",
	"deadlock_timeout":                "100ms",
	"max_logical_replication_workers": "0",
}

// local is a server process of ours.
type local struct {
	bin  string // where the programs are
	dir  string // of everything it has; data and log are in it
	port string
	hold net.PacketConn      // keeps the port from other servers of tests
	cred *syscall.Credential // nil: ours
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	life io.Closer     // the watchdog's pipe
	dog  *exec.Cmd
}

func start(o Options) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	l := &local{bin: bin}
	if os.Geteuid() == 0 {
		if l.cred, err = unprivileged(); err != nil {
			return nil, err
		}
	}
	if l.dir, err = l.folder(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{l.watch, l.initdb, func() error { return l.configure(o) }, l.startFirst} {
		if err := step(); err != nil {
			l.end()
			return nil, err
		}
	}
	return &Server{url: l.url(), local: l}, nil
}

// find looks for the newest server installed.
func find() (bin string, err error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	sort.Slice(dirs, func(i, j int) bool { return version(dirs[i]) > version(dirs[j]) })
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "initdb")); err == nil {
			return d, nil
		}
	}
	p, err := exec.LookPath("initdb")
	if err != nil {
		return "", errNoServer
	}
	if p, err = filepath.EvalSymlinks(p); err != nil {
		return "", err
	}
	return filepath.Dir(p), nil
}

func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// unprivileged is a user for a server that must not run as root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("a server cannot run as root, and there is no user postgres or nobody to run it as")
}

// folder makes the server's folder where its user can reach it.
func (l *local) folder() (string, error) {
	parent := os.TempDir()
	for d := parent; l.cred != nil && d != filepath.Dir(d); d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm()&1 == 0 {
			parent = "/tmp"
		}
	}
	dir, err := os.MkdirTemp(parent, "pgtest")
	if err == nil && l.cred != nil {
		err = os.Chown(dir, int(l.cred.Uid), int(l.cred.Gid))
	}
	return dir, err
}

// watch starts a process that ends the server and removes its folder when this process is gone, however it went: it
// reads from a pipe that only this process can write to.
func (l *local) watch() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	l.dog = exec.Command("/bin/sh", "-c", `trap '' INT TERM HUP; read x
		p=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$p" 2>/dev/null
		n=0; while [ -n "$p" ] && kill -0 "$p" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
		rm -rf "$0"`, l.dir)
	l.dog.Stdin = r
	l.dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.dog.Start(); err != nil {
		w.Close()
		return err
	}
	l.life = w
	return nil
}

// run runs one of the server's programs to its end.
func (l *local) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(l.bin, name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.cred}
	cmd.Dir = l.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (l *local) data() string { return filepath.Join(l.dir, "data") }
func (l *local) log() string  { return filepath.Join(l.dir, "log") }

func (l *local) initdb() error {
	secret := filepath.Join(l.dir, "secret")
	if err := os.WriteFile(secret, []byte(Password+"\n"), 0o644); err != nil {
		return err
	}
	return l.run("initdb", "-D", l.data(), "-U", "postgres", "--auth=scram-sha-256", "--pwfile="+secret,
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// takePort takes a port that nobody listens on. It is none that systems give to connections: one of those, perhaps to
// the server itself while it is down, would keep the server from coming back. Other servers of tests leave it alone for
// as long as the same port of UDP is held, also while the server is down.
func (l *local) takePort() error {
	const first, count, tries = 12_000, 18_000, 100
	l.leavePort()
	var err error
	for range tries {
		l.port = strconv.Itoa(first + rand.IntN(count))
		if l.hold, err = net.ListenPacket("udp", "127.0.0.1:"+l.port); err != nil {
			continue
		}
		var free net.Listener
		if free, err = net.Listen("tcp", "127.0.0.1:"+l.port); err == nil {
			return free.Close()
		}
		l.leavePort()
	}
	return err
}

func (l *local) leavePort() {
	if l.hold != nil {
		l.hold.Close()
		l.hold = nil
	}
}

func (l *local) configure(o Options) error {
	conf := &strings.Builder{}
	put := func(settings map[string]string) {
		for name, value := range settings {
			fmt.Fprintf(conf, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
		}
	}
	put(defaults)
	if !o.Fsync {
		put(map[string]string{"fsync": "off", "full_page_writes": "off"})
	}
	put(o.Settings)
	f, err := os.OpenFile(filepath.Join(l.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(conf.String())
	return errors.Join(err, f.Close())
}

func (l *local) url() string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", Password),
		Host: "127.0.0.1:" + l.port, Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String()
}

// startFirst starts the server for the first time, on a port that nobody has.
func (l *local) startFirst() error {
	const tries = 5
	for try := 1; ; try++ {
		if err := l.takePort(); err != nil {
			return err
		}
		err := l.start()
		// Between the look at the port and the start somebody else may have taken it.
		if err == nil || try == tries || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

// start runs the server until it answers.
func (l *local) start() error {
	log, err := os.OpenFile(l.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(l.bin, "postgres"), "-D", l.data(), "-p", l.port)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.cred, Setpgid: true}
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	l.cmd, l.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := l.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("the server did not start: %s", l.tail())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w: %s", err, l.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answers says whether the server that listens is this one.
func (l *local) answers(ctx context.Context) error {
	c, err := pgx.Connect(ctx, l.url())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var data string
	if err := c.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if data != l.data() {
		return fmt.Errorf("the server on port %s is another one, of %s", l.port, data)
	}
	return nil
}

func (l *local) tail() []byte {
	b, _ := os.ReadFile(l.log())
	return b[max(0, len(b)-4096):]
}

func (l *local) stop(mode Mode) error {
	sig := map[Mode]os.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT, Smart: syscall.SIGTERM}[mode]
	if err := l.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-l.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server does not stop: %s", l.tail())
	}
}

// end stops the server for good and removes its files.
func (l *local) end() {
	if l.cmd != nil {
		_ = l.stop(Immediate)
	}
	if l.life != nil {
		l.life.Close()
		_ = l.dog.Wait()
	}
	l.leavePort()
	os.RemoveAll(l.dir)
}
