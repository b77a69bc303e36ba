package storage

// marks tell of records, by their number, what a round of compaction has found out about them.
type marks struct {
	old    []uint64 // a bit a record: another one makes it superfluous
	noted  []uint64 // a bit for 64 records: one of them has to be looked at for another reason
	number int      // of the next record
}

// reset begins with record 0.
func (m *marks) reset() { m.old, m.noted, m.number = m.old[:0], m.noted[:0], 0 }

// add gives the number of the first of so many records that come next. It makes room for their marks if they have none,
// so where all records were added before, it may be called while others look at the marks.
func (m *marks) add(count int) (first int) {
	first = m.number
	m.number += count
	for len(m.old) < (m.number+63)/64 {
		m.old = append(m.old, 0)
	}
	for len(m.noted) < (m.number+4095)/4096 {
		m.noted = append(m.noted, 0)
	}
	return first
}

func (m *marks) setOld(number int)      { m.old[number>>6] |= 1 << (number & 63) }
func (m *marks) isOld(number int) bool  { return m.old[number>>6]>>(number&63)&1 != 0 }
func (m *marks) note(number int)        { m.noted[number>>12] |= 1 << (number >> 6 & 63) }
func (m *marks) isNoted(block int) bool { return m.noted[block>>6]>>(block&63)&1 != 0 }

// none says that so many records from one on have no marks. It may say no where there are some nearby.
func (m *marks) none(first, count int) bool {
	last := first + count - 1
	for block := first >> 6; block <= last>>6; block++ {
		if m.isNoted(block) {
			return false
		}
		word := m.old[block]
		if block == first>>6 {
			word = word >> (first & 63) << (first & 63)
		}
		if block == last>>6 {
			word &= 1<<(last&63+1) - 1
		}
		if word != 0 {
			return false
		}
	}
	return true
}
