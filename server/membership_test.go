package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

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

// The leader tells when it heard of the others, every node when it heard of the leader.
func TestMembersTellTheLastContact(t *testing.T) {
	running(t, func(l *lab) {
		l.pass(10 * time.Second) // a few heartbeats
		heard := 0
		for id := range l.boxes {
			status, text := l.do(id, http.MethodGet, "/v1/cluster/members", "")
			require.Equal(t, http.StatusOK, status, text)
			var list struct {
				Items []struct {
					ID   int32      `json:"id"`
					Last *time.Time `json:"last_contact"`
				} `json:"items"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &list))
			for _, m := range list.Items {
				if m.Last == nil {
					require.NotEqual(t, id, m.ID, "a node knows of itself")
					continue
				}
				heard++
				require.WithinDuration(t, time.Now(), *m.Last, 3*time.Second)
			}
		}
		require.Equal(t, 5, heard, "the leader of all three, the others of themselves")
	})
}
