package faults_test

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pipe is a network between nodes and a server: a listener that hands connections on, as long as it is not cut.
type pipe struct {
	listener net.Listener
	to       string

	wg    sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu: of both sides
	flow  chan struct{}     // guarded by mu: closed while bytes pass
	cut   bool              // guarded by mu: connections are refused
	ended bool              // guarded by mu
}

func newPipe(t testing.TB, to string) *pipe {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &pipe{listener: l, to: to, conns: map[net.Conn]bool{}, flow: make(chan struct{})}
	close(p.flow)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *pipe) port() string {
	_, port, _ := net.SplitHostPort(p.listener.Addr().String())
	return port
}

func (p *pipe) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// keep notes a connection, so that it can be broken; false: none may be now.
func (p *pipe) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.ended {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *pipe) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *pipe) serve(in net.Conn) {
	defer p.drop(in)
	if !p.keep(in) {
		return
	}
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.drop(out)
	if !p.keep(out) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(in, out) })
	wg.Go(func() { p.copy(out, in) })
	wg.Wait()
}

// copy hands bytes on until one side ends, and ends the other.
func (p *pipe) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.await()
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *pipe) await() {
	p.mu.Lock()
	flow := p.flow
	p.mu.Unlock()
	<-flow
}

// breakAll resets the connections there are.
func (p *pipe) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		var tcp *net.TCPConn
		if t, ok := c.(*net.TCPConn); ok {
			tcp = t
		}
		_ = tcp.SetLinger(0) // it may be closed
		c.Close()
	}
}

// sever resets what is connected and refuses what comes, until mend.
func (p *pipe) sever() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.breakAll()
}

// stall keeps all bytes back, until mend.
func (p *pipe) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flow = make(chan struct{})
}

// mend ends what sever or stall began. Bytes that were kept back pass then, late.
func (p *pipe) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

func (p *pipe) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.mend()
	p.breakAll()
	p.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		panic(err)
	}
}
