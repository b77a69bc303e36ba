package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is one process under test, with its data.
type server struct {
	cmd  *exec.Cmd
	addr string
	dir  string
	log  *os.File
	// others are the further processes of a cluster.
	others []*server
}

// freeAddr picks a loopback port that is free now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start runs a program on a fresh data directory; {addr}, {port} and {dir} stand for its own in the arguments.
func (b *bench) start(ctx context.Context, program string, args ...string) (*server, error) {
	dir, err := os.MkdirTemp(b.work, "data-")
	if err != nil {
		return nil, err
	}
	return b.startIn(ctx, dir, program, args...)
}

func (b *bench) startIn(ctx context.Context, dir, program string, args ...string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return b.startAt(ctx, dir, addr, program, args...)
}

func (b *bench) startAt(ctx context.Context, dir, addr, program string, args ...string) (s *server, err error) {
	_, port, _ := net.SplitHostPort(addr)
	fill := strings.NewReplacer("{addr}", addr, "{port}", port, "{dir}", dir)
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	s = &server{cmd: exec.CommandContext(ctx, program, args...), addr: addr, dir: dir}
	logs := filepath.Join(b.work, "servers.log")
	if s.log, err = os.OpenFile(logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	return s, nil
}

// ready waits until something accepts connections.
func (s *server) ready(ctx context.Context) error {
	return s.await(ctx, func() error {
		c, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// healthy waits until our node says that it is ready.
func (s *server) healthy(ctx context.Context) error {
	return s.await(ctx, func() error {
		_, err := s.get("/health/ready")
		return err
	})
}

func (s *server) await(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s did not come up: %w", s.cmd.Path, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// get asks our node for a path and returns the body of a 200.
func (s *server) get(path string) (string, error) { return s.call(http.MethodGet, path, "", "") }

func (s *server) call(method, path, ctype, body string) (string, error) {
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	plain := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	client := &http.Client{Timeout: 120 * time.Second, Transport: plain}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, text)
	}
	return string(text), nil
}

// stop ends the process and deletes its data, so that the next contender finds the same memory and disk.
func (s *server) stop(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig)
	timer := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	s.log.Close()
}

func (s *server) end() {
	sig := syscall.SIGTERM
	if len(s.others) > 0 {
		sig = syscall.SIGKILL // a member would hand over to the others first
	}
	for _, o := range append(s.others, s) {
		o.stop(sig)
		os.RemoveAll(o.dir)
	}
}

// pids lists the processes by commas.
func (s *server) pids() string {
	list := strconv.Itoa(s.cmd.Process.Pid)
	for _, o := range s.others {
		list += "," + strconv.Itoa(o.cmd.Process.Pid)
	}
	return list
}

// own starts our binary; sync is log.sync.
func (b *bench) own(ctx context.Context, sync string, more ...string) (*server, error) {
	s, err := b.start(ctx, b.millrace, ownArgs(sync, more...)...)
	if err != nil {
		return nil, err
	}
	return s, s.healthy(ctx)
}

func ownArgs(sync string, more ...string) []string {
	args := []string{"serve", "--listen", "{addr}", "--data-dir", "{dir}", "--log-format", "json", "--log-level", "warn"}
	return append(append(args, "--set", "log.sync="+sync), more...)
}

// roof starts the roofline server; sync is none or group.
func (b *bench) roof(ctx context.Context, sync string) (*server, error) {
	s, err := b.start(ctx, b.roofline, "-addr", "{addr}", "-dir", "{dir}", "-sync", sync)
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx)
}

// natsd starts nats-server with JetStream on a file store.
func (b *bench) natsd(ctx context.Context, syncAlways bool) (*server, error) {
	if b.nats == "" {
		return nil, fmt.Errorf("no nats-server")
	}
	conf := "jetstream {store_dir: \"{dir}\"}\n"
	if syncAlways {
		conf = "jetstream {store_dir: \"{dir}\", sync_interval: always}\n"
	}
	dir, err := os.MkdirTemp(b.work, "data-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(conf, "{dir}", dir)), 0o644); err != nil {
		return nil, err
	}
	s, err := b.startIn(ctx, dir, b.nats, "-a", "127.0.0.1", "-p", "{port}", "-c", file)
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx)
}
