package cdc

import "encoding/binary"

// keepalive is the kind of what stands in a block for a keepalive of the server: all before its place has been sent.
const keepalive = 'k'

// block is a run of messages on their way from the connection to the task, in one piece of memory. Each is
//
//	place in the log 8 | length 4 | message
type block struct {
	buf  []byte
	rows int // changes in it
	at   int // of reading
	tail int // where the last message begins, if that is a keepalive; else -1
}

const blockHeader = 12

func (b *block) reset() { b.buf, b.rows, b.at, b.tail = b.buf[:0], 0, 0, -1 }

// add appends a message, which may come in two parts.
func (b *block) add(at lsn, head, body []byte) {
	b.tail = -1
	b.buf = binary.BigEndian.AppendUint64(b.buf, uint64(at))
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(head)+len(body)))
	b.buf = append(append(b.buf, head...), body...)
	if len(head) > 0 && isChange(head[0]) {
		b.rows++
	}
}

// keep notes a keepalive; one right behind another takes its place.
func (b *block) keep(at lsn) {
	if b.tail >= 0 {
		binary.BigEndian.PutUint64(b.buf[b.tail:], uint64(at))
		return
	}
	tail := len(b.buf)
	b.add(at, []byte{keepalive}, nil)
	b.tail = tail
}

// next takes the next message out. It is good until the block is reset.
func (b *block) next() (at lsn, message []byte, ok bool) {
	if b.at >= len(b.buf) {
		return 0, nil, false
	}
	h := b.buf[b.at:]
	n := int(binary.BigEndian.Uint32(h[8:]))
	b.at += blockHeader + n
	return lsn(binary.BigEndian.Uint64(h)), h[blockHeader : blockHeader+n : blockHeader+n], true
}

// begin and commit make the messages that stand around a transaction that came in parts, as around one that did not.
func beginMessage(commit lsn, at micros, xid uint32) []byte {
	b := []byte{msgBegin}
	b = binary.BigEndian.AppendUint64(b, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(int64(at)-epochMicros))
	return binary.BigEndian.AppendUint32(b, xid)
}

func commitMessage(commit, end lsn, at micros) []byte {
	b := []byte{msgCommit, 0}
	b = binary.BigEndian.AppendUint64(b, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return binary.BigEndian.AppendUint64(b, uint64(int64(at)-epochMicros))
}
