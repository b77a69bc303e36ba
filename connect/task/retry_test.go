package task

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

func TestRetries(t *testing.T) {
	errLater, errNever := plugin.Retriable(errors.New("later")), errors.New("never")
	try := func(limit time.Duration, ctx context.Context, do func(n int) error) (n int, took time.Duration, err error) {
		r := &retrier{limit: limit, longest: 2 * time.Second, rand: rand.New(rand.NewPCG(1, 2)), count: func() { n++ }}
		begun := time.Now()
		err = r.again(ctx, errLater, func() error { return do(n) })
		return n, time.Since(begun), err
	}
	always := func(int) error { return errLater }
	synctest.Test(t, func(t *testing.T) {
		n, took, err := try(0, t.Context(), always)
		require.Equal(t, errLater, err)
		require.Zero(t, n)
		require.Zero(t, took)

		n, took, err = try(10*time.Second, t.Context(), always)
		require.Equal(t, errLater, err)
		require.Greater(t, n, 5)
		require.LessOrEqual(t, took, 10*time.Second)
		require.Greater(t, took, 7*time.Second)

		n, took, err = try(time.Minute, t.Context(), func(n int) error {
			if n == 3 {
				return nil
			}
			return errLater
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, 300*7*time.Millisecond, took, "delays double")

		n, _, err = try(time.Minute, t.Context(), func(int) error { return errNever })
		require.Equal(t, errNever, err)
		require.Equal(t, 1, n)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		n, took, err = try(math.MaxInt64, ctx, always)
		require.Equal(t, errLater, err)
		require.Equal(t, time.Hour, took)
		require.Greater(t, n, 1800, "no delay is longer than the longest")
	})
}

func TestSampleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sample
		s.add(10)
		s.add(20)
		mean, most, least := s.read()
		require.Equal(t, []float64{15, 20, 10}, []float64{mean, most, least})
		time.Sleep(window)
		s.add(3)
		mean, most, least = s.read()
		require.Equal(t, []float64{11, 20, 3}, []float64{mean, most, least})
		time.Sleep(window)
		_, most, _ = s.read()
		require.Equal(t, 3.0, most)
		time.Sleep(2 * window)
		mean, most, least = s.read()
		require.Equal(t, []float64{0, 0, 0}, []float64{mean, most, least})
	})
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{begun: time.Now()}
		time.Sleep(time.Second)
		c.set(true)
		c.set(true)
		time.Sleep(2 * time.Second)
		require.InDelta(t, 2.0/3, c.ratio(), 1e-9)
		c.set(false)
		time.Sleep(time.Second)
		require.InDelta(t, 0.5, c.ratio(), 1e-9)
	})
}
