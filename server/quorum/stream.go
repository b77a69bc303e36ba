package quorum

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// StreamPath is where a node takes streams from others: GET with Upgrade.
const StreamPath = "/internal/raft"

const (
	streamProtocol = "millrace-raft/1"
	clusterHeader  = "Millrace-Cluster"
	fromHeader     = "Millrace-From"
	toHeader       = "Millrace-To"

	// handshakeTimeout bounds how long the node that takes a stream waits for its answer to be written.
	handshakeTimeout = 10 * time.Second
	// refusalBytes bounds what is read of the reason why a stream was refused.
	refusalBytes = 1 << 10
	// maxTakenOf bounds the streams that a node takes of another one, and maxTaken those of all. A leader has maxStreams
	// idle ones and a few at work. Of one more the oldest makes room: when the other node is gone without a word, what is
	// left of its streams looks as if it lived.
	maxTakenOf = 16
	maxTaken   = 256
	// warnPause is the least time between two warnings about the same node.
	warnPause = time.Minute
	// lookElsewhere bounds the try to reach a node where it was, if it may be elsewhere too. Elections wait for it.
	lookElsewhere = time.Second
)

// StreamConfig is what NewStreams needs.
type StreamConfig struct {
	NodeID int32
	// Address is this node's base URL.
	Address string
	// Voters tells where else a node may be that is not where the members agreed that it is: they cannot agree on
	// anything else once a majority has moved.
	Voters []Voter
	// Dial connects to the host and port of a base URL.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Authorize puts the cluster's credential on a request; nil puts none.
	Authorize func(h http.Header)
	// Check verifies the credential of a request; nil takes all.
	Check func(r *http.Request) bool
	// ClusterID is the cluster that this node belongs to, "" as long as it is not known; nil: never known.
	ClusterID func() string
	Logger    *slog.Logger
}

// Streams carries raft's messages between nodes, on connections that begin as HTTP/1.1 requests to the node's own port:
//
//	GET /internal/raft HTTP/1.1              HTTP/1.1 101 Switching Protocols
//	Connection: Upgrade                      Connection: Upgrade
//	Upgrade: millrace-raft/1                 Upgrade: millrace-raft/1
//	Millrace-Cluster: the sender's, if known
//	Millrace-From: the sender's node id
//	Millrace-To: the wanted node's id
//
// It is a raft.StreamLayer, and the http.Handler for StreamPath. A stream is refused with 401 without the cluster's
// credential, 409 between two clusters, 421 where another node was wanted.
type Streams struct {
	c      StreamConfig
	taken  chan net.Conn
	life   context.Context // ends dials when Close begins
	end    context.CancelFunc
	mu     sync.Mutex
	closed bool                 // guarded by mu
	open   map[*stream]struct{} // guarded by mu; of those taken, at most maxTakenOf of a node and maxTaken of all
	serial uint64               // guarded by mu; of the newest stream
	warned map[string]time.Time // guarded by mu; when, by address
	ended  func(from int32)     // guarded by mu; hears of streams that others end; it never waits
}

// NewStreams makes streams. They end with Close.
func NewStreams(c StreamConfig) *Streams {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Streams{c: c, taken: make(chan net.Conn), open: map[*stream]struct{}{}, warned: map[string]time.Time{}}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// stream is an open connection.
type stream struct {
	net.Conn
	r       io.Reader // what came with the handshake, then the connection
	from    int32     // the node that dialled it; 0: this one
	taken   bool      // it was dialled by another node
	serial  uint64    // rises from one to the next
	streams *Streams
	once    sync.Once
	gone    chan struct{} // closed when this end closes it
}

// Read implements net.Conn.
func (c *stream) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && c.from > 0 && !errors.Is(err, net.ErrClosed) {
		c.streams.tellEnd(c.from)
	}
	return n, err
}

// onEnd sets who hears of streams that other nodes have dialled and that end.
func (s *Streams) onEnd(ended func(from int32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = ended
}

func (s *Streams) tellEnd(from int32) {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended != nil {
		ended(from)
	}
}

// refused reports whether nobody listens at a base URL. That a host cannot be reached says nothing about that.
func (s *Streams) refused(base string) bool {
	ctx, cancel := context.WithTimeout(s.life, refusalTimeout)
	defer cancel()
	conn, err := s.c.Dial(ctx, base)
	if err == nil {
		_ = conn.Close() // nothing was said on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Close implements net.Conn.
func (c *stream) Close() error {
	c.once.Do(func() { close(c.gone) })
	c.streams.mu.Lock()
	delete(c.streams.open, c)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}

// keep makes a connection a stream that ends with Close of all, at the latest. It closes it if that has been. A stream
// that is taken may end an older one.
func (s *Streams) keep(k *stream, r *bufio.Reader) error {
	k.r, k.streams, k.gone = k.Conn, s, make(chan struct{})
	if r.Buffered() > 0 {
		k.r = io.MultiReader(io.LimitReader(r, int64(r.Buffered())), k.Conn)
	}
	var oldest *stream
	s.mu.Lock()
	closed := s.closed
	if !closed {
		if k.taken {
			oldest = s.oldestLocked(k.from)
		}
		s.serial++
		k.serial = s.serial
		s.open[k] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		return errors.Join(net.ErrClosed, k.Conn.Close())
	}
	if oldest != nil {
		_ = oldest.Close() // the other side may have closed it
	}
	return nil
}

// oldestLocked is the stream that has to make room for one more of a node, or nil. It is taken off the list.
func (s *Streams) oldestLocked(from int32) *stream {
	var ofNode, ofAll *stream
	node, all := 0, 0
	for c := range s.open {
		if !c.taken {
			continue
		}
		if all++; ofAll == nil || c.serial < ofAll.serial {
			ofAll = c
		}
		if c.from != from {
			continue
		}
		if node++; ofNode == nil || c.serial < ofNode.serial {
			ofNode = c
		}
	}
	oldest := ofNode
	switch {
	case node >= maxTakenOf:
	case all >= maxTaken:
		oldest = ofAll
	default:
		return nil
	}
	delete(s.open, oldest)
	return oldest
}

// Accept implements net.Listener.
func (s *Streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.taken:
		return c, nil
	case <-s.life.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It ends all streams, taken and dialled.
func (s *Streams) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*stream
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	s.end()
	for _, c := range open {
		_ = c.Close() // both sides may close it, whoever is the first
	}
	return nil
}

// Addr implements net.Listener. It is the node's base URL.
func (s *Streams) Addr() net.Addr { return streamAddr(s.c.Address) }

// streamAddr is a base URL as a net.Addr.
type streamAddr string

// Network implements net.Addr.
func (streamAddr) Network() string { return "http" }

// String implements net.Addr.
func (a streamAddr) String() string { return string(a) }

func (s *Streams) clusterID() string {
	if s.c.ClusterID == nil {
		return ""
	}
	return s.c.ClusterID()
}

// ServeHTTP implements http.Handler: it takes a stream.
func (s *Streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, reason := s.judge(r)
	if status != http.StatusSwitchingProtocols {
		http.Error(w, reason, status)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be a stream: "+err.Error(), http.StatusUpgradeRequired)
		return
	}
	if err := answer(conn); err != nil {
		_ = conn.Close() // the caller learns from that
		return
	}
	c := &stream{Conn: conn, taken: true}
	if from, err := strconv.ParseInt(r.Header.Get(fromHeader), 10, 32); err == nil {
		c.from = int32(from)
	}
	if s.keep(c, rw.Reader) != nil {
		return
	}
	select {
	case s.taken <- c:
	case <-c.gone:
	case <-s.life.Done():
		_ = c.Close()
	}
}

// answer agrees to a stream, on a connection that the HTTP server may have left deadlines on.
func answer(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		streamProtocol+"\r\n\r\n")
	if err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// judge decides about a request for a stream: 101, or a status and the reason.
func (s *Streams) judge(r *http.Request) (int, string) {
	if s.c.Check != nil && !s.c.Check(r) {
		return http.StatusUnauthorized, "the cluster's credential is missing or another one: " +
			"give all nodes the same cluster secret"
	}
	if r.Method != http.MethodGet {
		return http.StatusMethodNotAllowed, "only GET"
	}
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), streamProtocol) {
		return http.StatusUpgradeRequired, "this is for streams between nodes: Upgrade: " + streamProtocol + ", on HTTP/1.1"
	}
	own, theirs := s.clusterID(), r.Header.Get(clusterHeader)
	if own != "" && theirs != "" && own != theirs {
		return http.StatusConflict, fmt.Sprintf("node %d belongs to cluster %s, the calling node %s to cluster %s: "+
			"correct its list of voters, or give it an empty data directory to join this cluster",
			s.c.NodeID, own, r.Header.Get(fromHeader), theirs)
	}
	if to := r.Header.Get(toHeader); to != "" && to != strconv.Itoa(int(s.c.NodeID)) {
		return http.StatusMisdirectedRequest, fmt.Sprintf("this is node %d, not node %s: "+
			"correct the address of node %s", s.c.NodeID, to, to)
	}
	if r.Header.Get(fromHeader) == strconv.Itoa(int(s.c.NodeID)) {
		return http.StatusMisdirectedRequest, fmt.Sprintf("the calling node says that it is node %d, and so is this one: "+
			"one of them runs on a copy of the other's data directory; stop it", s.c.NodeID)
	}
	return http.StatusSwitchingProtocols, ""
}

// Dial implements raft.StreamLayer.
func (s *Streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, timeout)
	defer cancel()
	base, id := splitID(address)
	c, err := s.find(ctx, base, id)
	if err != nil {
		s.warn(base, id, err)
		return nil, fmt.Errorf("stream to %s: %w", base, err)
	}
	return c, nil
}

// find connects to a node where the members agreed that it is, else where the list of voters has it.
func (s *Streams) find(ctx context.Context, base, id string) (net.Conn, error) {
	i := slices.IndexFunc(s.c.Voters, func(v Voter) bool { return strconv.Itoa(int(v.ID)) == id && v.Address != base })
	if i < 0 {
		return s.dial(ctx, base, id)
	}
	first, cancel := context.WithTimeout(ctx, lookElsewhere)
	defer cancel()
	c, err := s.dial(first, base, id)
	if err == nil {
		return c, nil
	}
	elsewhere := s.c.Voters[i].Address
	c, other := s.dial(ctx, elsewhere, id)
	if other != nil {
		return nil, fmt.Errorf("%w; at %s: %w", err, elsewhere, other)
	}
	return c, nil
}

func (s *Streams) dial(ctx context.Context, base, id string) (net.Conn, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, errors.New("it has no address that can be called")
	}
	conn, err := s.c.Dial(ctx, base)
	if err != nil {
		return nil, err
	}
	undo := context.AfterFunc(ctx, func() { _ = conn.Close() })
	r, err := s.ask(conn, u.Host, id)
	if !undo() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the first error says more
		return nil, err
	}
	c := &stream{Conn: conn}
	if err := s.keep(c, r); err != nil {
		return nil, err
	}
	return c, nil
}

// ask turns a connection into a stream. The reader holds what came after the answer.
func (s *Streams) ask(conn net.Conn, host, id string) (*bufio.Reader, error) {
	req := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: StreamPath}, Host: host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {streamProtocol}, fromHeader: {strconv.Itoa(int(s.c.NodeID))},
		},
	}
	if id != "" {
		req.Header.Set(toHeader, id)
	}
	if own := s.clusterID(); own != "" {
		req.Header.Set(clusterHeader, own)
	}
	if s.c.Authorize != nil {
		s.c.Authorize(req.Header)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if p := resp.Header.Get("Upgrade"); !strings.EqualFold(p, streamProtocol) {
			return nil, fmt.Errorf("it speaks %q instead of %q", p, streamProtocol)
		}
		return r, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBytes)) // the status says enough
	return nil, fmt.Errorf("refused with %s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// warn tells once in a while that a node cannot be reached.
func (s *Streams) warn(address, id string, err error) {
	s.mu.Lock()
	last, known := s.warned[address]
	due := !s.closed && (!known || time.Since(last) >= warnPause)
	if due {
		s.warned[address] = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.c.Logger.Warn("no stream for metadata to another node", "node", id, "address", address, "err", err)
	}
}
