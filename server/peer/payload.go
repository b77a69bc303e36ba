package peer

import (
	"io"
	"sync"

	"millrace/record"
)

// payload is an encoded request on its way. The transport may read it once more on another connection, and may still
// hold a reader after it returned; the memory goes back when the last one has been closed.
type payload struct {
	bytes []byte

	mu    sync.Mutex
	arena *record.Arena // guarded by mu; freed when users is 0
	users int           // the sender and open readers; guarded by mu
	whole bool          // a reader has got to the end; guarded by mu
}

func newPayload(bytes []byte, arena *record.Arena) *payload {
	return &payload{bytes: bytes, arena: arena, users: 1}
}

// open makes a reader from the start; the sender must still use the payload.
func (p *payload) open() io.ReadCloser {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	return &payloadReader{payload: p}
}

// release ends one use.
func (p *payload) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.arena.Free()
	}
}

// delivered tells whether the transport has taken all bytes. If not, the peer cannot have the whole request, and it
// does nothing for a part.
func (p *payload) delivered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole
}

type payloadReader struct {
	payload *payload
	at      int  // guarded by payload.mu
	closed  bool // guarded by payload.mu
}

// Read implements io.Reader.
func (r *payloadReader) Read(b []byte) (int, error) {
	p := r.payload
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.closed {
		return 0, io.ErrClosedPipe
	}
	n := copy(b, p.bytes[r.at:])
	r.at += n
	if r.at == len(p.bytes) {
		p.whole = true
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error {
	r.payload.mu.Lock()
	was := r.closed
	r.closed = true
	r.payload.mu.Unlock()
	if !was {
		r.payload.release()
	}
	return nil
}
