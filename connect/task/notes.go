package task

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Bounds of notes.
const (
	maxNotes      = 1000 // topics of one write
	noteGrace     = time.Second
	noteLongest   = 10 * time.Second // between two tries
	noteFirstWait = 100 * time.Millisecond
)

// notes has it be written which topics a connector uses, so that the task does not wait for it: the partition where
// that is kept may be away while the task's own topics are not. A topic waits once, however often records go to it. One
// loop writes, and tries again what could not be written.
type notes struct {
	write func(ctx context.Context, topics []string) error
	log   *slog.Logger
	woken chan struct{} // has an element when something is to be written; closed when the task has ended

	mu      sync.Mutex
	waiting []string // guarded by mu: not written

	cancel context.CancelFunc
	wg     sync.WaitGroup // of the loop
}

// openNotes starts the loop. One goroutine may call add and, at last, close.
func openNotes(write func(ctx context.Context, topics []string) error, log *slog.Logger) *notes {
	n := &notes{write: write, log: log, woken: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.wg.Go(func() { n.run(ctx) })
	return n
}

// add has a topic be noted, which must not have been added before.
func (n *notes) add(topic string) {
	n.mu.Lock()
	n.waiting = append(n.waiting, topic)
	n.mu.Unlock()
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// close ends the loop, and waits for it. What waits has a moment to be written; else the next run of the task notes it.
func (n *notes) close() {
	close(n.woken)
	end := time.AfterFunc(noteGrace, n.cancel)
	n.wg.Wait()
	end.Stop()
	n.cancel()
}

func (n *notes) run(ctx context.Context) {
	pause := backoff{first: noteFirstWait, longest: noteLongest}
	for range n.woken {
		for list := n.next(); len(list) > 0 && ctx.Err() == nil; list = n.next() {
			if err := n.write(ctx, list); err != nil {
				n.log.Debug("the use of topics could not be noted yet", "topics", list, "err", err)
				_ = sleep(ctx, pause.delay())
				continue
			}
			pause.reset()
			n.mu.Lock()
			n.waiting = n.waiting[len(list):]
			n.mu.Unlock()
		}
	}
}

// next are the topics to write now.
func (n *notes) next() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.waiting[:min(len(n.waiting), maxNotes)])
}
