package controller

import (
	"time"

	"millrace/server/metadata"
)

const (
	// probeAgain is the least time between two probes of a broker that was suspected.
	probeAgain = 100 * time.Millisecond
	// probeSilent is the least time between two probes of a broker that is silent.
	probeSilent = time.Second
)

// liveness is what the active controller knows of brokers beyond the metadata: when each was heard of,
// how far it is, and what probes of its port found. None of it survives the term: the next controller
// starts every session anew, for it cannot know who was heard of before. It reads no clock; callers give
// the time, whose monotonic part alone counts.
type liveness struct {
	leading bool
	term    uint64
	// started is when sessions began for brokers that were not heard of since.
	started  time.Time
	sessions map[int32]*session // by broker id; only registered brokers have one
}

// session is of one registration of a broker.
type session struct {
	epoch int64
	// heard is when the last heartbeat or the registration came; zero when none came in this term.
	heard time.Time
	// offset is the metadata index that the broker said it had reached.
	offset int64
	// shutdown is the metadata index at which the broker's controlled shutdown began; zero: it did not.
	shutdown int64

	suspect bool // somebody saw the port refuse: to be probed soon
	probing bool
	probed  time.Time // when the last probe ended
	refused bool      // the last probe was refused, and nothing was heard since it began
}

// pace is how fast brokers are to say that they live.
type pace struct{ session, heartbeat time.Duration }

func paceOf(image *metadata.Image) pace {
	s := image.Settings()
	return pace{session: s.SessionTimeout, heartbeat: s.HeartbeatInterval}
}

// begin starts a term: every session starts now, and every broker in service but the controller's own
// is to be probed once, because one of them may be why there is a new term.
func (l *liveness) begin(term uint64, image *metadata.Image, self int32, now time.Time) {
	l.leading, l.term, l.started = true, term, now
	l.sessions = make(map[int32]*session)
	for _, b := range image.Brokers() {
		if !b.Fenced && b.ID != self {
			l.session(b.ID, b.Epoch).suspect = true
		}
	}
}

// restart starts every session anew: whoever keeps time was not there to hear.
func (l *liveness) restart(now time.Time) { l.started = now }

// session returns the session of a broker, a new one when it has registered since.
func (l *liveness) session(id int32, epoch int64) *session {
	s := l.sessions[id]
	if s == nil || s.epoch != epoch {
		s = &session{epoch: epoch}
		l.sessions[id] = s
	}
	return s
}

// hear notes a sign of life.
func (l *liveness) hear(id int32, epoch, offset int64, now time.Time) *session {
	s := l.session(id, epoch)
	s.heard, s.offset, s.refused = now, max(s.offset, offset), false
	return s
}

// contact is when the broker was heard of, or when its session began if it was not since.
func (l *liveness) contact(b *metadata.Broker) time.Time {
	if s := l.sessions[b.ID]; s != nil && s.epoch == b.Epoch && s.heard.After(l.started) {
		return s.heard
	}
	return l.started
}

// live reports whether the broker's session is under way, so that no other process may have its id. A
// controller begins anew with its process, so of its own node it has heard or there is nothing to hear.
func (l *liveness) live(b *metadata.Broker, self int32, p pace, now time.Time) bool {
	s := l.sessions[b.ID]
	heard := s != nil && s.epoch == b.Epoch && !s.heard.IsZero()
	if !heard && (b.Fenced || b.ID == self) {
		return false
	}
	return now.Sub(l.contact(b)) < p.session
}

// fenced ends the session of a broker that was taken out of service.
func (l *liveness) fenced(b *metadata.Broker) {
	if s := l.sessions[b.ID]; s != nil && s.epoch == b.Epoch {
		s.heard, s.refused, s.suspect = time.Time{}, false, false
	}
}

// probed notes what a probe that began at that time found.
func (l *liveness) probed(b *metadata.Broker, refused bool, began, now time.Time) {
	s := l.sessions[b.ID]
	if s == nil || s.epoch != b.Epoch {
		return
	}
	s.probing, s.probed = false, now
	s.refused = refused && !s.heard.After(began)
}

// step is what to do next.
type step struct {
	fence *metadata.Broker // or nil
	why   string
	probe []*metadata.Broker
	wait  time.Duration // until something may be due
}

// next decides the next step: at most one broker to fence, one whose port refused before one that is
// silent for too long, of those the longest silent; and up to so many to probe. A cluster of one broker
// is left alone, because there is nobody to take over.
func (l *liveness) next(image *metadata.Image, p pace, self int32, probes int, now time.Time) step {
	st := step{wait: tick}
	brokers := image.Brokers()
	l.forget(image)
	if len(brokers) < 2 {
		return st
	}
	for _, b := range brokers {
		if b.Fenced {
			continue
		}
		s := l.session(b.ID, b.Epoch)
		if s.refused {
			st.fence, st.why = b, "its process is gone"
			break
		}
		contact := l.contact(b)
		if left := contact.Add(p.session).Sub(now); left > 0 {
			st.wait = min(st.wait, left)
		} else if st.fence == nil || contact.Before(l.contact(st.fence)) {
			st.fence, st.why = b, "it was silent for the session timeout"
		}
		if b.ID == self || s.probing {
			continue
		}
		if left := s.probeAt(contact, p).Sub(now); left > 0 {
			st.wait = min(st.wait, left)
		} else if len(st.probe) < probes {
			st.probe = append(st.probe, b)
		}
	}
	return st
}

// uncertain reports whether a probe will soon tell of a broker in service, but for one, that it is gone.
func (l *liveness) uncertain(image *metadata.Image, except int32) bool {
	for _, b := range image.Brokers() {
		s := l.sessions[b.ID]
		if b.ID != except && !b.Fenced && s != nil && s.epoch == b.Epoch && (s.suspect || s.probing || s.refused) {
			return true
		}
	}
	return false
}

// probeAt is when the broker is to be probed next, if nothing is heard of it before.
func (s *session) probeAt(contact time.Time, p pace) time.Time {
	if s.suspect {
		return s.probed.Add(probeAgain)
	}
	at := contact.Add(p.heartbeat * 3 / 2)
	if again := s.probed.Add(probeSilent); again.After(at) {
		return again
	}
	return at
}

// forget drops the sessions of brokers that are not registered any more.
func (l *liveness) forget(image *metadata.Image) {
	for id := range l.sessions {
		if image.Broker(id) == nil {
			delete(l.sessions, id)
		}
	}
}

// allReached reports whether every broker in service but one has said that it reached that index of the
// metadata. Those that were silent for two heartbeats are not waited for.
func (l *liveness) allReached(index int64, image *metadata.Image, except int32, now time.Time) bool {
	patience := 2 * paceOf(image).heartbeat
	for _, b := range image.Brokers() {
		if b.ID == except || !image.Active(b.ID) || now.Sub(l.contact(b)) > patience {
			continue
		}
		if s := l.sessions[b.ID]; s == nil || s.epoch != b.Epoch || s.offset < index {
			return false
		}
	}
	return true
}
