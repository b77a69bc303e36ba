package servertest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/peer"
)

// Coded wraps a Requestor so that every request and every response is encoded and decoded on its way, as between two
// nodes. Local calls share memory, remote ones do not; behind Coded a field that the encoding drops, a version that
// was not set, or bytes that someone keeps after the call fail in a test on one node. Request bytes are overwritten
// when the call returns.
func Coded(t testing.TB, to kmsg.Requestor) kmsg.Requestor { return &coded{t, to} }

type coded struct {
	t  testing.TB
	to kmsg.Requestor
}

// Request implements kmsg.Requestor.
func (c *coded) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	wire, err := peer.AppendRequest(nil, r)
	if err != nil {
		c.t.Errorf("request does not encode: %v", err)
		return nil, err
	}
	remote, err := peer.ReadRequest(r.Key(), r.GetVersion(), wire)
	if err != nil {
		c.t.Errorf("request does not decode: %v", err)
		return nil, err
	}
	if gone := lost(r, remote); len(gone) > 0 {
		c.t.Errorf("the request loses on its way between nodes: %q", gone)
	}
	answer, err := c.to.Request(ctx, remote)
	if err != nil {
		return nil, err
	}
	for i := range wire {
		wire[i] = 0xdb // whoever kept a part of the request reads this
	}
	answer.SetVersion(r.GetVersion())
	local, err := peer.ReadResponse(r, answer.AppendTo(nil))
	if err != nil {
		c.t.Errorf("response does not decode: %v", err)
		return nil, err
	}
	if gone := lost(answer, local); len(gone) > 0 {
		c.t.Errorf("the answer to %s loses on its way between nodes: %q", kmsg.NameForKey(r.Key()), gone)
	}
	return local, nil
}
