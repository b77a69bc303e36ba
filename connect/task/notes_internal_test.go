package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What waits is written together, in parts that have a bound, and again until it is written.
func TestNotesAreWrittenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		fails := 3
		n := openNotes(func(_ context.Context, topics []string) error {
			if fails--; fails >= 0 {
				return errors.New("nobody is there")
			}
			require.LessOrEqual(t, len(topics), maxNotes)
			got = append(got, topics...)
			return nil
		}, slog.New(slog.DiscardHandler))
		var want []string
		for i := range maxNotes + 1 {
			want = append(want, fmt.Sprint(i))
			n.add(want[i])
		}
		time.Sleep(noteFirstWait * (1 + 2 + 4))
		synctest.Wait()
		require.Equal(t, want, got)
		begun := time.Now()
		n.add("last")
		n.close()
		require.Equal(t, "last", got[len(got)-1])
		require.Zero(t, time.Since(begun))
	})
}

// A task that ends does not wait for a write that does not, beyond a moment.
func TestNotesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNotes(func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		n.add("t")
		begun := time.Now()
		n.close()
		require.Equal(t, noteGrace, time.Since(begun))
	})
}
