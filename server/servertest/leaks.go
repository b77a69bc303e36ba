package servertest

import (
	"testing"

	"go.uber.org/goleak"
)

// leakTries bounds the wait for goroutines that are about to end: each look takes half a second where one is left.
const leakTries = 60

// VerifyNoLeaks runs a package's tests as its TestMain, and fails when they leave goroutines behind. On a machine that
// does other things connections and nodes that were closed take longer to end than goleak waits by itself.
func VerifyNoLeaks(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient are tests after which their goroutines have the time to end.
type patient struct{ tests *testing.M }

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.tests.Run()
	for try := 0; code == 0 && try < leakTries && goleak.Find() != nil; try++ {
	}
	return code
}
