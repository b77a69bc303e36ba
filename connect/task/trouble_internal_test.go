package task

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTroublesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		tr := &troubles{tell: func(why error) {
			text := "well"
			if why != nil {
				text = why.Error()
			}
			told = append(told, text)
		}}
		heard := func(want ...string) {
			t.Helper()
			require.Equal(t, want, told)
			told = nil
		}
		full, away := errors.New("the disk is full"), errors.New("nobody is there")
		time.Sleep(time.Hour)
		tr.set(putWork, nil)
		tr.set(putWork, full)
		time.Sleep(troubleAfter / 2)
		tr.set(putWork, nil)
		heard()

		tr.set(putWork, full)
		time.Sleep(troubleAfter)
		tr.set(putWork, full)
		heard("it is tried again: the disk is full")
		tr.set(putWork, full)
		tr.set(putWork, away) // it changes, but not often
		heard()
		time.Sleep(troubleEvery)
		tr.set(putWork, away)
		tr.set(openWork, full)
		heard("it is tried again: nobody is there")
		time.Sleep(troubleEvery)
		tr.set(openWork, full)
		heard("it is tried again: the disk is full\nnobody is there")
		tr.set(openWork, nil)
		heard() // less is told later
		tr.set(putWork, nil)
		heard("well")

		for range 1000 { // what comes and goes
			tr.set(sendWork, away)
			time.Sleep(troubleAfter)
			tr.set(sendWork, away)
			tr.set(sendWork, nil)
		}
		require.InDelta(t, 400, len(told), 10)
	})
}
