// Package wire lets programs that speak Kafka's own protocol talk to a kmsg.Requestor, in tests.
//
// Millrace has no such listener: its front door is HTTP. With this one in between, clients that others wrote, and tests
// that were made for other brokers, run against it, so that what it answers is judged by more than its own tests.
//
// A server owns its port and its connections. It answers the requests of a connection one after the other, as Kafka
// does, so what is under way is bounded by the connections. Whatever broker a client wants to talk to, it is told this
// address: finding the leader is left to the Requestor. There is no authentication.
package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// Bounds of a server.
const (
	maxConnections = 256
	maxFrame       = 32 << 20
)

// Server is a listener for clients of Kafka.
type Server struct {
	to       kmsg.Requestor
	listener net.Listener
	host     string
	port     int32

	ctx    context.Context // of all requests
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

// Open opens a server on a loopback port.
func Open(to kmsg.Requestor) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at := l.Addr().(*net.TCPAddr)
	s := &Server{to: to, listener: l, host: at.IP.String(), port: int32(at.Port), conns: make(map[net.Conn]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is the seed broker for clients.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends all connections and what goes on in them.
func (s *Server) Close() {
	s.cancel()
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.keep(c) {
			_ = c.Close()
			continue
		}
		s.wg.Go(func() {
			s.serve(c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			_ = c.Close()
		})
	}
}

// keep takes a connection into the books, if there is room.
func (s *Server) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) >= maxConnections {
		return false
	}
	s.conns[c] = true
	return true
}

// serve answers the requests of a connection, until it ends, or one of them cannot be answered.
func (s *Server) serve(c net.Conn) {
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		answer, err := s.answer(c, frame)
		if err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// header is what stands before a request:
//
//	i16 key | i16 version | i32 correlation id | nullable string client id | tags, where the version is flexible
type header struct {
	key, version int16
	correlation  int32
	client       string
}

// parse reads a request. One in a version that is not served is nil.
func parse(frame []byte) (h header, req kmsg.Request, err error) {
	b := kbin.Reader{Src: frame}
	h.key, h.version, h.correlation = b.Int16(), b.Int16(), b.Int32()
	if client := b.NullableString(); client != nil {
		h.client = *client
	}
	newest, ok := versions()[kmsg.Key(h.key)]
	switch {
	case !b.Ok():
		return h, nil, errors.New("frame without a header")
	case !ok:
		return h, nil, fmt.Errorf("key %d is not served", h.key)
	case h.version > newest:
		return h, nil, nil
	}
	req = kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	if req.IsFlexible() {
		kmsg.SkipTags(&b)
	}
	return h, req, req.ReadFrom(b.Src)
}

// answer answers one request. It is empty for a Produce that wants no answer.
func (s *Server) answer(c net.Conn, frame []byte) ([]byte, error) {
	h, req, err := parse(frame)
	if err != nil {
		return nil, err
	}
	var resp kmsg.Response
	switch r := req.(type) {
	case nil, *kmsg.ApiVersionsRequest:
		resp = apiVersions(&h, req == nil)
	case *kmsg.ProduceRequest:
		silent := r.Acks == 0
		if resp, err = s.to.Request(s.ctx, r); silent {
			return nil, err
		}
	default:
		setClient(req, &h, c)
		freeOfEpochs(req)
		if resp, err = s.to.Request(s.ctx, req); err == nil {
			s.redirect(resp)
		}
	}
	if err != nil {
		return nil, err
	}
	if req != nil {
		resp.SetVersion(h.version)
	}
	dst := binary.BigEndian.AppendUint32(make([]byte, 4, 512), uint32(h.correlation))
	if resp.IsFlexible() && h.key != kmsg.ApiVersions.Int16() {
		dst = append(dst, 0) // no tags
	}
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	return dst, nil
}

// setClient says who asks, where a member of a group may come of it.
func setClient(req kmsg.Request, h *header, c net.Conn) {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		ktag.SetClient(&r.UnknownTags, h.client, "/"+host)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		ktag.SetClient(&r.UnknownTags, h.client, "/"+host)
	}
}

// freeOfEpochs takes out in which leader epochs a client believes the partitions to be: it has no leaders to choose
// from, and whoever routes for it would try in vain until it knows better.
func freeOfEpochs(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].CurrentLeaderEpoch = -1
			}
		}
	case *kmsg.ListOffsetsRequest:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].CurrentLeaderEpoch = -1
			}
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].CurrentLeaderEpoch = -1
			}
		}
	}
}

// redirect has a client find every broker here.
func (s *Server) redirect(resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = s.host, s.port
		}
	case *kmsg.FindCoordinatorResponse:
		r.Host, r.Port = s.host, s.port
		for i := range r.Coordinators {
			r.Coordinators[i].Host, r.Coordinators[i].Port = s.host, s.port
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = s.host, s.port
		}
	}
}

// apiVersions lists what is served. A request in a newer version is told so in the oldest.
func apiVersions(h *header, tooNew bool) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	if tooNew {
		resp.ErrorCode = kerr.UnsupportedVersion.Code
	} else {
		resp.Version = h.version
	}
	for key, newest := range versions() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key.Int16(), newest
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

// versions are the keys that are served, each with its newest version. Topics are named by name, which all nodes
// understand.
func versions() map[kmsg.Key]int16 {
	return map[kmsg.Key]int16{
		kmsg.ApiVersions: 4, kmsg.Metadata: 13, kmsg.DescribeCluster: 2, kmsg.DescribeConfigs: 4,
		kmsg.Produce: 12, kmsg.Fetch: 12, kmsg.ListOffsets: 11, kmsg.OffsetForLeaderEpoch: 4, kmsg.DeleteRecords: 2,
		kmsg.CreateTopics: 7, kmsg.DeleteTopics: 6, kmsg.CreatePartitions: 3, kmsg.IncrementalAlterConfigs: 1,
		kmsg.FindCoordinator: 6, kmsg.JoinGroup: 9, kmsg.SyncGroup: 5, kmsg.Heartbeat: 4, kmsg.LeaveGroup: 5,
		kmsg.ConsumerGroupHeartbeat: 1, kmsg.ConsumerGroupDescribe: 1,
		kmsg.OffsetCommit: 9, kmsg.OffsetFetch: 9, kmsg.OffsetDelete: 0, kmsg.DescribeGroups: 6, kmsg.ListGroups: 5,
		kmsg.DeleteGroups:   2,
		kmsg.InitProducerID: 5, kmsg.AddPartitionsToTxn: 5, kmsg.AddOffsetsToTxn: 4, kmsg.TxnOffsetCommit: 5,
		kmsg.EndTxn: 5, kmsg.DescribeTransactions: 0, kmsg.ListTransactions: 1, kmsg.DescribeProducers: 0,
	}
}
