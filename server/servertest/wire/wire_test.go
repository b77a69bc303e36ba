package wire_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/servertest/wire"
)

// stuck answers nothing until its context ends.
type stuck struct{ asked chan kmsg.Request }

func (s stuck) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	s.asked <- r
	<-ctx.Done()
	return nil, ctx.Err()
}

// start opens a server for a test.
func start(t *testing.T, to kmsg.Requestor) *wire.Server {
	s, err := wire.Open(to)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func dial(t *testing.T, s *wire.Server) net.Conn {
	c, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return c
}

// What cannot be read ends the connection, and nothing else.
func TestBadFrames(t *testing.T) {
	s := start(t, stuck{})
	for name, frame := range map[string][]byte{
		"huge":          {0x7f, 0xff, 0xff, 0xff},
		"empty":         {0, 0, 0, 0},
		"short header":  {0, 0, 0, 3, 0, 3, 0},
		"unknown key":   {0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"no body":       {0, 0, 0, 10, 0, 11, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"negative name": {0, 0, 0, 10, 0, 11, 0, 0, 0, 0, 0, 1, 0, 9},
	} {
		c := dial(t, s)
		_, err := c.Write(frame)
		require.NoError(t, err, name)
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, name)
	}
}

// A client that is too new is told what there is.
func TestVersionsAreTold(t *testing.T) {
	c := dial(t, start(t, stuck{}))
	_, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff})
	require.NoError(t, err)
	var head [8]byte
	_, err = io.ReadFull(c, head[:])
	require.NoError(t, err)
	require.EqualValues(t, 7, binary.BigEndian.Uint32(head[4:]))
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err = io.ReadFull(c, body)
	require.NoError(t, err)
	resp := kmsg.NewPtrApiVersionsResponse()
	require.NoError(t, resp.ReadFrom(body))
	require.Equal(t, kerr.UnsupportedVersion.Code, resp.ErrorCode)
	require.NotEmpty(t, resp.ApiKeys)
}

// Closing ends what goes on.
func TestCloseEndsRequests(t *testing.T) {
	to := stuck{make(chan kmsg.Request, 1)}
	s := start(t, to)
	c := dial(t, s)
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group = 4, "g"
	_, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, req, 1))
	require.NoError(t, err)
	require.Equal(t, "g", (<-to.asked).(*kmsg.HeartbeatRequest).Group)
	s.Close()
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}
