package storage

import (
	"runtime"
	"sync"

	"millrace/record"
)

// A round goes through segments piece by piece. It reads a piece, hands it to workers, who do what takes time and needs
// nothing but the piece, and takes it up again when they are done, in order. So all reading and writing, and all
// decisions, are in one goroutine, and the order of what the disk hears does not depend on the workers.

const (
	mostWorkers = 2
	mostPieces  = mostWorkers + 2 // one being taken up, one waiting
	// pieceRecords is about how many records are in a piece at most, for what is kept of each.
	pieceRecords = 16 << 10
	// workerBytes is what a batch may expand to that a worker goes through. What is larger is left to the round, so
	// that there is one of its kind at a time.
	workerBytes = 4 << 20
)

// piece is a run of batches of a segment.
type piece struct {
	seg   *segment
	buf   []byte
	tasks []task
	err   error // of reading what follows
	done  chan struct{}

	from, stop int64       // the records that are looked at
	share      keyShare    // the keys that are
	keys       []hashedKey // of the records that were looked at
	out        []byte      // what is left of batches that changed
}

// task is a batch of a piece, and what a worker found out.
type task struct {
	batch  record.Batch
	pos    int64
	last   bool // there is no batch behind it in what is gone through
	marks  *marks
	number int // of its first record, in marks
	err    error
	left   bool // to the round

	keys [2]int // where in the piece's keys

	outcome record.Outcome
	out     [2]int // where in the piece's output
	keyless int64  // records without a key
}

// worker is the memory of a goroutine that goes through pieces.
type worker struct {
	records record.Compactor
	keys    []hashedKey
	sink    uint32

	task    *task // the batch at hand
	number  int   // of the next of its records
	expired bool  // its horizon has passed
}

// source gives the pieces of segments.
type source struct {
	round   *round
	list    segmentList
	walk    walker
	open    bool                        // walk goes through the first of list
	from    int64                       // earlier records are passed over
	stop    int64                       // so are those from here on
	numbers func(b record.Batch) *marks // where the records of a batch get numbers, nil: nowhere
	most    int                         // there are; the round is to end before more of them. 0: no bound
}

// more says whether there is another piece.
func (s *source) more() (bool, error) {
	for len(s.list) > 0 {
		if !s.open {
			if s.list[0].base >= s.stop {
				return false, nil
			}
			s.walk, s.open = s.list[0].walkWith(0, s.list[0].size.Load(), nil), true
		}
		if s.walk.more() {
			return true, nil
		}
		s.next()
	}
	return false, nil
}

func (s *source) next() { s.list, s.open = s.list[1:], false }

// start begins with the batch of an offset in the first segment.
func (s *source) start(offset int64) error {
	first, err := s.round.log.find(s.list[0], offset)
	if err == errNoBatch {
		s.next()
		return nil
	}
	if err != nil {
		return s.round.readFailed(err)
	}
	s.walk, s.open = s.list[0].walkWith(first.pos, s.list[0].size.Load(), nil), true
	s.walk.startAt(first.pos, first.base)
	return nil
}

// read reads the next piece.
func (s *source) read(p *piece) {
	w := &s.walk
	p.seg, p.err, p.tasks, p.keys, p.out = w.seg, nil, p.tasks[:0], p.keys[:0], p.out[:0]
	p.from, p.stop, p.share = s.from, s.stop, s.round.keys.share
	if size := s.round.bufferSize; len(p.buf) < size || len(p.buf) > 4*size {
		p.buf = make([]byte, size)
	}
	w.buf, w.n = p.buf, 0
	records := 0
	for w.more() && records < pieceRecords && (len(p.tasks) == 0 || w.holdsNext()) {
		t, err := s.task()
		if err != nil {
			p.err = s.round.readFailed(err)
			break
		}
		if t.batch == nil {
			s.list = nil
			break
		}
		if t.marks != nil {
			records += int(t.batch.Count())
		}
		p.tasks = append(p.tasks, t)
	}
	p.buf = w.buf
}

// task reads the next batch; there is none where the source ends.
func (s *source) task() (t task, err error) {
	r, w := s.round, &s.walk
	b, pos, err := w.whole()
	if err != nil {
		return t, err
	}
	r.result.BytesRead += int64(len(b))
	if err := r.pace(len(b)); err != nil {
		return t, err
	}
	count := int(b.Count())
	switch {
	case b.BaseOffset() >= s.stop:
		return t, nil
	case count > leastRecords:
		return t, w.corruptAt(pos, record.ErrCorrupt)
	}
	t = task{batch: b, pos: pos, last: !w.more() && len(s.list) == 1}
	if b.IsControl() || count <= 0 {
		return t, nil
	}
	t.marks = s.numbers(b)
	switch {
	case t.marks == nil:
	case s.most > 0 && t.marks.number > 0 && t.marks.number+count > s.most:
		r.end = b.BaseOffset()
		return task{}, nil
	default:
		t.number = t.marks.add(count)
	}
	return t, nil
}

// holdsNext says whether the next batch lies in what was read anyway.
func (w *walker) holdsNext() bool {
	i := w.pos - w.at
	if i < 0 || i+record.HeaderSize > int64(w.n) {
		return false
	}
	return i+int64(record.Batch(w.buf[i:]).Length()) <= int64(w.n)
}

// each has workers go through the pieces of a source, and takes each up in order until take has enough.
func (r *round) each(s *source, work func(*worker, *piece), take func(*piece) (more bool, err error)) error {
	r.prepare(r.options.Level)
	var wg sync.WaitGroup
	jobs := make(chan *piece, mostPieces)
	defer wg.Wait()
	defer close(jobs)
	for i := range min(mostWorkers, runtime.GOMAXPROCS(0)) {
		w := &r.workers[i]
		wg.Go(func() {
			for p := range jobs {
				work(w, p)
				p.done <- struct{}{}
			}
		})
	}
	var queue []*piece
	free := append([]*piece(nil), r.pieces...)
	for more := true; ; {
		for more && len(free) > 0 {
			var err error
			if more, err = s.more(); err != nil {
				return err
			}
			if !more {
				break
			}
			p := free[0]
			free = free[1:]
			if s.read(p); p.err != nil {
				more = false
			}
			jobs <- p
			queue = append(queue, p)
		}
		if len(queue) == 0 {
			return nil
		}
		p := queue[0]
		<-p.done
		if goOn, err := take(p); err != nil || !goOn {
			return err
		}
		if p.err != nil {
			return p.err
		}
		queue, free = queue[1:], append(free, p)
	}
}

// prepare makes what pieces and workers need.
func (c *Compactor) prepare(level func(record.Codec) int) {
	if c.codecs == nil {
		c.codecs = record.NewCodecs(mostWorkers + 1)
	}
	for len(c.pieces) < mostPieces {
		c.pieces = append(c.pieces, new(piece))
	}
	for _, p := range c.pieces {
		p.done = make(chan struct{}, 1)
	}
	for i := range c.workers {
		c.workers[i].records.Codecs, c.workers[i].records.MaxExpanded = c.codecs, workerBytes
		c.workers[i].records.Level = level
	}
	c.own.records.Codecs, c.own.records.Level = c.codecs, level
}
