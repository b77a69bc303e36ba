package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows a long produce on a terminal: a bar when the input's size is known, else a count. A nil progress is
// silent, so that scripts see nothing.
type progress struct {
	bar   *progressbar.ProgressBar
	c     *cli
	size  int64
	start time.Time
}

// shownAfter spares short commands the flicker.
const shownAfter = time.Second

func (c *cli) newProgress(size int64) *progress {
	if !isTerminal(c.err) {
		return nil
	}
	return &progress{c: c, size: size, start: time.Now()}
}

// show draws how far the command is, once it has run for a while.
func (p *progress) show(records, bytes int64) {
	if p == nil {
		return
	}
	if p.bar == nil {
		if time.Since(p.start) < shownAfter {
			return
		}
		p.bar = p.draw()
	}
	if p.size >= 0 {
		_ = p.bar.Set64(min(bytes, p.size))
	} else {
		_ = p.bar.Set64(records)
	}
}

func (p *progress) draw() *progressbar.ProgressBar {
	opts := []progressbar.Option{
		progressbar.OptionSetWriter(p.c.err), progressbar.OptionSetDescription("storing"),
		progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionShowCount(),
	}
	if p.size < 0 {
		opts = append(opts, progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"))
		return progressbar.NewOptions64(-1, opts...)
	}
	return progressbar.NewOptions64(p.size, append(opts, progressbar.OptionShowBytes(true))...)
}

// done removes the bar; the summary line follows it.
func (p *progress) done() {
	if p != nil && p.bar != nil {
		_ = p.bar.Finish()
	}
}
