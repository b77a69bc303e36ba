package servertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
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

// versionOf pins what each key is encoded as: the newest version, but of Produce and Fetch the newest that still
// carries topic names.
func versionOf(r kmsg.Request) int16 {
	switch r.Key() {
	case kmsg.Produce.Int16(), kmsg.Fetch.Int16():
		return min(12, r.MaxVersion())
	default:
		return r.MaxVersion()
	}
}

// Request implements kmsg.Requestor.
func (c *coded) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	version := versionOf(r)
	r.SetVersion(version)
	wire := r.AppendTo(nil)
	remote := kmsg.RequestForKey(r.Key())
	remote.SetVersion(version)
	if err := remote.ReadFrom(wire); err != nil {
		c.t.Errorf("request %s does not decode: %v", kmsg.NameForKey(r.Key()), err)
		return nil, fmt.Errorf("decode request: %w", err)
	}
	answer, err := c.to.Request(ctx, remote)
	if err != nil {
		return nil, err
	}
	for i := range wire {
		wire[i] = 0xdb // whoever kept a part of the request reads this
	}
	answer.SetVersion(version)
	back := answer.AppendTo(nil)
	local := r.ResponseKind()
	local.SetVersion(version)
	if err := local.ReadFrom(back); err != nil {
		c.t.Errorf("response %s does not decode: %v", kmsg.NameForKey(r.Key()), err)
		return nil, fmt.Errorf("decode response: %w", err)
	}
	return local, nil
}
