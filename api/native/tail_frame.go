package native

import (
	"context"
	"slices"
	"strconv"

	"millrace/client"
	"millrace/record"
)

// A frame is a run of whole server-sent events, framed as one chunk of HTTP/1.1's chunked coding so that the same
// bytes go to every connection:
//
//	+--------------+------+--------+------+
//	| size, 8 hex  | CRLF | events | CRLF |
//	+--------------+------+--------+------+
//
// A sealed frame is never changed.
type frame []byte

const (
	frameHead  = sizeDigits + 2
	frameTail  = 2
	sizeDigits = 8 // of hex: more than a record can have
	lastChunk  = "0\r\n\r\n"
)

// newFrame starts a frame in the memory of buf.
func newFrame(buf []byte) []byte { return append(buf[:0], "00000000\r\n"...) }

// sealFrame ends the frame that newFrame began.
func sealFrame(b []byte) frame {
	const hex = "0123456789abcdef"
	n := len(b) - frameHead
	for i := sizeDigits - 1; i >= 0; i-- {
		b[i] = hex[n&15]
		n >>= 4
	}
	return append(b, '\r', '\n')
}

// events are the frame without the chunk around it.
func (f frame) events() []byte { return f[frameHead : len(f)-frameTail] }

// commentFrame keeps idle connections open.
func commentFrame() frame { return sealFrame(append(newFrame(nil), ": keep-alive\n\n"...)) }

// eventWriter turns fetched records into frames of events. The id of each event is the position after its record.
type eventWriter struct {
	client  *client.Client
	json    jsonEncoder
	watch   plainWatch
	key     hubKey
	tag     string
	offsets []int64 // after what was written; its own

	open   []byte  // the frame in the making, nil if there is none
	spare  []byte  // memory for the next one
	frames []frame // sealed

	size  int       // bytes written
	after [][]int64 // offsets behind each of frames

	before, behind []byte // what goes around the offset that the event in hand moves
	packed         bool   // how offsets are written
}

// newEventWriter makes a writer for a hub's topic that goes on from offsets, of which there shall be at least count.
func newEventWriter(h *hub, topic *client.Topic, offsets []int64, count int) *eventWriter {
	e := &eventWriter{
		json: jsonEncoder{key: h.key.key, value: h.key.value, lines: true}, key: h.key, tag: topicTag(h.key.id),
		client:  h.tails.consumer.client,
		watch:   plainWatch{known: h.tails.consumer.plain, topic: topic},
		offsets: make([]int64, max(len(offsets), count)),
	}
	copy(e.offsets, offsets)
	e.packed = (&position{partition: h.key.partition, offsets: e.offsets}).isPacked()
	return e
}

// write adds the records of a fetch that lie below an offset bound, as far as there is room for them. i is the index
// of its partition.
func (e *eventWriter) write(s *scanner, i int, f *client.FetchResult, bound int64) error {
	if len(f.Batches) == 0 {
		return nil // most partitions of most fetches, and what goes around an event grows with the partitions
	}
	e.surround(i)
	e.watch.encoder, e.watch.partition = &e.json, f.Partition
	of := segment{batches: f.Batches, from: e.offsets[i], before: bound, aborted: f.Aborted, watch: &e.watch}
	next, err := s.scan(of, func(r *record.Record) bool {
		if e.size > roundBytes {
			return false
		}
		e.offsets[i] = r.Offset + 1
		e.event(f.Partition, r)
		return true
	})
	e.offsets[i] = next
	return err
}

// begin moves the partition at index i, of which f says that its log starts later, to that start.
func (e *eventWriter) begin(ctx context.Context, i int, f *client.FetchResult) bool {
	start, _, err := boundsOf(ctx, e.client, e.watch.topic, f)
	if err != nil || start <= e.offsets[i] {
		return false
	}
	e.offsets[i] = start
	return true
}

// unreadable says that the batch of the partition at index i cannot be read from where the writer stands.
func (e *eventWriter) unreadable(i int, partition int32, cause error) error {
	at := place{partition: partition, next: e.offsets[i]}
	return unreadable(e.watch.topic, at, cause, func(offset int64) position {
		p := position{partition: e.key.partition, offsets: slices.Clone(e.offsets), tag: e.tag}
		p.offsets[i] = offset
		return p
	})
}

// surround prepares the parts of a written position that stay the same while only offset i moves.
func (e *eventWriter) surround(i int) {
	e.before, e.behind = append(e.before[:0], "id: "...), e.behind[:0]
	if e.key.partition != allPartitions {
		e.before = strconv.AppendInt(e.before, int64(e.key.partition), 10)
		e.before = append(e.before, ':')
	}
	if e.packed {
		e.before = append(e.before, '.')
	}
	for _, o := range e.offsets[:i] {
		e.before = e.appendOffset(e.before, o)
		if !e.packed {
			e.before = append(e.before, ',')
		}
	}
	for _, o := range e.offsets[i+1:] {
		if !e.packed {
			e.behind = append(e.behind, ',')
		}
		e.behind = e.appendOffset(e.behind, o)
	}
	if e.tag != "" {
		e.behind = append(e.behind, '~')
		e.behind = append(e.behind, e.tag...)
	}
	e.behind = append(e.behind, "\ndata: "...)
}

func (e *eventWriter) appendOffset(dst []byte, offset int64) []byte {
	if e.packed {
		return appendPacked(dst, offset)
	}
	return strconv.AppendInt(dst, offset, 10)
}

func (e *eventWriter) event(partition int32, r *record.Record) {
	if e.open == nil {
		e.open = newFrame(e.spare)
		e.spare = nil
	}
	start := len(e.open)
	b := append(e.open, e.before...)
	b = e.appendOffset(b, r.Offset+1)
	b = append(b, e.behind...)
	b = e.json.append(b, partition, r)
	e.open = append(b, '\n', '\n')
	e.size += len(e.open) - start
	if len(e.open) > frameBytes {
		e.cut()
	}
}

// cut ends the frame in the making.
func (e *eventWriter) cut() {
	if e.open == nil {
		return
	}
	e.frames = append(e.frames, sealFrame(e.open))
	e.after = append(e.after, slices.Clone(e.offsets))
	e.open = nil
}

// finish returns the frames.
func (e *eventWriter) finish() []frame {
	e.cut()
	return e.frames
}
