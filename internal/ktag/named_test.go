package ktag_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func TestNamedSurvivesEncoding(t *testing.T) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(5)
	require.False(t, ktag.Named(&req.UnknownTags))
	ktag.SetNamed(&req.UnknownTags)
	got := kmsg.NewPtrInitProducerIDRequest()
	got.SetVersion(5)
	require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
	require.True(t, ktag.Named(&got.UnknownTags))
}
