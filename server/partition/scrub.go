package partition

import "millrace/storage"

// Scrub reads some of the log below the high watermark as it lies on disk, from an offset on, and tells where to go
// on: at or above the high watermark when all was read. Damage is a DamageError as a reader meets it, and is told like
// that.
func (r *Replica) Scrub(from int64, maxBytes int) (storage.Scrubbed, error) {
	from = max(from, r.log.StartOffset())
	hw := r.hw.Load()
	if from >= hw {
		return storage.Scrubbed{Next: from}, nil
	}
	s, err := r.log.Scrub(from, hw, maxBytes)
	if err != nil {
		return s, r.readFailed(from, err)
	}
	return s, nil
}
