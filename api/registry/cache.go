package registry

import (
	"strconv"
	"sync"

	"millrace/schemaregistry"
)

// cache holds the encoded answers to requests for ids: consumers ask for the same few again and again. Whether an
// answer still holds is told by what it was made of, so nothing need be taken out when the registry changes.
type cache struct {
	most int // bytes

	mu    sync.RWMutex
	bytes int             // of all answers; guarded by mu
	by    map[int]*cached // by id; guarded by mu
}

// cached is one answer. It does not change.
type cached struct {
	guid      [16]byte
	timestamp int64
	deleted   bool
	body      []byte
	length    []string // of the body, as a header's value
}

func (c *cached) is(v *schemaregistry.Version) bool {
	return c.guid == v.GUID && c.timestamp == v.Timestamp && c.deleted == v.Deleted
}

// get is the answer for a version, encoded now if it was not before.
func (c *cache) get(v *schemaregistry.Version) (*cached, error) {
	c.mu.RLock()
	found := c.by[v.ID]
	c.mu.RUnlock()
	if found != nil && found.is(v) {
		return found, nil
	}
	body, err := appendVersion(nil, v, members{})
	if err != nil {
		return nil, err
	}
	made := &cached{v.GUID, v.Timestamp, v.Deleted, body, []string{strconv.Itoa(len(body))}}
	c.put(v.ID, made)
	return made, nil
}

// put keeps an answer in the place of any others, as many as there must be.
func (c *cache) put(id int, made *cached) {
	if len(made.body) > c.most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[int]*cached{}
	}
	if old := c.by[id]; old != nil {
		c.bytes -= len(old.body)
	}
	c.by[id] = made
	c.bytes += len(made.body)
	for other, old := range c.by { // in no order
		if c.bytes <= c.most {
			return
		}
		if other != id {
			delete(c.by, other)
			c.bytes -= len(old.body)
		}
	}
}
