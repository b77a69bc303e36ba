package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api/native"
	"millrace/server"
	"millrace/server/quorum"
)

// Only what certainly changed nothing is told as refused; the rest as unknown.
func TestMemberFaults(t *testing.T) {
	require.NoError(t, server.MemberFault(nil))
	for _, c := range []struct {
		err    error
		status int
	}{
		{quorum.ErrNotMember, 404},
		{fmt.Errorf("%w: the only voter", quorum.ErrRefused), 409},
		{quorum.ErrNotLeader, 503},
		{quorum.ErrBusy, 503},
		{quorum.ErrClosed, 503},
		{quorum.ErrOffline, 504},
		{errors.New("leadership lost while committing log"), 504},
		{context.DeadlineExceeded, 504},
		{context.Canceled, 504},
	} {
		var m *native.MembershipError
		require.ErrorAs(t, server.MemberFault(c.err), &m)
		require.Equal(t, c.status, m.Status, "%v", c.err)
	}
}
