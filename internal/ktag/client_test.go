package ktag_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func TestClient(t *testing.T) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = 9
	id, host := ktag.Client(&req.UnknownTags)
	require.Empty(t, id+host)
	ktag.SetClient(&req.UnknownTags, "c", "10.0.0.1")
	got := kmsg.NewPtrJoinGroupRequest()
	got.Version = 9
	require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
	id, host = ktag.Client(&got.UnknownTags)
	require.Equal(t, "c", id)
	require.Equal(t, "10.0.0.1", host)
}
