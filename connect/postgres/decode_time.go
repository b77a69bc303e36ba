package postgres

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"

	"millrace/connect/data"
)

var (
	errDate     = errors.New("the text is no date in the ISO style")
	errTime     = errors.New("the text is no time of day in the ISO style")
	errMoment   = errors.New("the text is no timestamp in the ISO style")
	errInterval = errors.New("the text is no interval in the style of PostgreSQL")
	errRange    = errors.New("the date or time is beyond what the number can carry")
	errDuration = errors.New("the interval is beyond what a number of microseconds can carry: " +
		"set interval.handling.mode=string")
)

// Infinity in numbers. Nanoseconds have the extremes of an int64, dates those of an int32, and so has no time that the
// server knows.
const (
	InfinityMicros    int64 = 9223372036825200000 // also the milliseconds of the JDBC driver
	NegInfinityMicros int64 = -9223372036832400000
	InfinityMillis    int64 = 9223372036825200 // T.Timestamp
	NegInfinityMillis int64 = -9223372036832400
	InfinityNanos     int64 = math.MaxInt64
	NegInfinityNanos  int64 = math.MinInt64
	InfinityDays      int32 = math.MaxInt32
	NegInfinityDays   int32 = math.MinInt32
)

const dayMicros = 86_400_000_000

// moment is a date and a time as the server writes them.
type moment struct {
	days     int64 // since 1970
	micros   int64 // of the day; 86,400,000,000 is 24:00:00
	offset   int64 // seconds east of UTC
	infinity int   // -1 or 1; the rest means nothing then
}

// number reads digits at the front, at most so many.
func number(b []byte, most int) (n int64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && i < most && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	return n, b[i:], i > 0
}

// pair reads two digits, which are at most max, behind a character unless that is 0.
func pair(b []byte, before byte, max int64) (n int64, rest []byte, ok bool) {
	if before != 0 {
		if len(b) == 0 || b[0] != before {
			return 0, b, false
		}
		b = b[1:]
	}
	if len(b) < 2 {
		return 0, b, false
	}
	n, rest, ok = number(b, 2)
	return n, rest, ok && len(b)-len(rest) == 2 && n <= max
}

// parseMoment reads a date, a time behind it if there is one, an offset behind that, and BC.
func parseMoment(b []byte) (m moment, ok bool) {
	switch string(b) {
	case "infinity":
		return moment{infinity: 1}, true
	case "-infinity":
		return moment{infinity: -1}, true
	}
	body, before := bytes.CutSuffix(b, []byte(" BC"))
	year, rest, ok1 := number(body, 7)
	month, rest, ok2 := pair(rest, '-', 12)
	day, rest, ok3 := pair(rest, '-', 31)
	if !ok1 || !ok2 || !ok3 || month == 0 || day == 0 || year == 0 {
		return m, false
	}
	if before {
		year = 1 - year
	}
	m.days = daysOf(year, month, day)
	if len(rest) == 0 {
		return m, true
	}
	if rest[0] != ' ' {
		return m, false
	}
	if m.micros, rest, ok = parseClock(rest[1:]); !ok {
		return m, false
	}
	m.offset, ok = parseOffset(rest)
	return m, ok
}

// parseClock reads HH:MM:SS and up to six digits behind it.
func parseClock(b []byte) (micros int64, rest []byte, ok bool) {
	hour, rest, ok1 := pair(b, 0, 24)
	minute, rest, ok2 := pair(rest, ':', 59)
	second, rest, ok3 := pair(rest, ':', 60)
	if !ok1 || !ok2 || !ok3 {
		return 0, rest, false
	}
	micros = ((hour*60+minute)*60 + second) * 1_000_000
	if len(rest) > 0 && rest[0] == '.' {
		fraction, after, ok := number(rest[1:], 6)
		if !ok {
			return 0, rest, false
		}
		for range 6 - (len(rest) - 1 - len(after)) {
			fraction *= 10
		}
		micros, rest = micros+fraction, after
	}
	return micros, rest, micros <= dayMicros
}

// parseOffset reads +HH[:MM[:SS]], or nothing.
func parseOffset(b []byte) (seconds int64, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	hour, rest, ok := pair(b[1:], 0, 15)
	seconds = hour * 3600
	for _, unit := range []int64{60, 1} {
		if !ok || len(rest) == 0 {
			break
		}
		var n int64
		n, rest, ok = pair(rest, ':', 59)
		seconds += n * unit
	}
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, ok && len(rest) == 0
}

// daysOf counts from 1970 in the Gregorian calendar, which the server uses for all times.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	yearOfEra := year - era*400
	dayOfYear := (153*((month+9)%12)+2)/5 + day - 1
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468
}

// dateOf is the inverse of daysOf.
func dateOf(days int64) (year, month, day int64) {
	days += 719468
	era := days / 146097
	if days < 0 {
		era = (days - 146096) / 146097
	}
	dayOfEra := days - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day, month = dayOfYear-(153*shifted+2)/5+1, shifted+3
	if month > 12 {
		month -= 12
	}
	year = yearOfEra + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// utc moves the offset into days and micros.
func (m moment) utc() moment {
	m.micros -= m.offset * 1_000_000
	m.offset = 0
	for m.micros < 0 {
		m.micros += dayMicros
		m.days--
	}
	for m.micros >= dayMicros {
		m.micros -= dayMicros
		m.days++
	}
	return m
}

// units is the moment's distance from 1970 in units of which a day has so many, cut towards the past.
func (m moment) units(perDay int64) (int64, error) {
	part := m.micros - m.offset*1_000_000
	if perDay >= dayMicros {
		part *= perDay / dayMicros
	} else {
		part = floorDiv(part, dayMicros/perDay)
	}
	whole := m.days * perDay
	if m.days != 0 && whole/m.days != perDay {
		return 0, errRange
	}
	if sum := whole + part; (sum > whole) == (part > 0) {
		return sum, nil
	}
	return 0, errRange
}

func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}

func decodeDate(b []byte) (any, error) {
	m, ok := parseMoment(b)
	switch {
	case !ok:
		return nil, errDate
	case m.infinity > 0:
		return InfinityDays, nil
	case m.infinity < 0:
		return NegInfinityDays, nil
	case m.days > math.MaxInt32 || m.days < math.MinInt32:
		return nil, errRange
	}
	return int32(m.days), nil
}

// decodeTime counts units of the day; time zones are taken away.
func decodeTime(perDay int64, short bool) decoder {
	return func(b []byte) (any, error) {
		micros, rest, ok := parseClock(b)
		offset, ok2 := parseOffset(rest)
		if !ok || !ok2 {
			return nil, errTime
		}
		if micros != dayMicros || offset != 0 {
			micros = moment{micros: micros, offset: offset}.utc().micros
		}
		n := micros
		if perDay >= dayMicros {
			n *= perDay / dayMicros
		} else {
			n /= dayMicros / perDay
		}
		if short {
			return int32(n), nil
		}
		return n, nil
	}
}

// decodeStamp counts units since 1970.
func decodeStamp(perDay, infinity, negInfinity int64) decoder {
	return func(b []byte) (any, error) {
		m, ok := parseMoment(b)
		switch {
		case !ok:
			return nil, errMoment
		case m.infinity > 0:
			return infinity, nil
		case m.infinity < 0:
			return negInfinity, nil
		}
		return m.units(perDay)
	}
}

// inZone takes moments without a zone for those of a zone.
func inZone(zone *time.Location, next func(m moment) (any, error)) decoder {
	return func(b []byte) (any, error) {
		m, ok := parseMoment(b)
		if !ok {
			return nil, errMoment
		}
		if zone != nil && zone != time.UTC && m.infinity == 0 {
			year, month, day := dateOf(m.days)
			local := time.Date(int(year), time.Month(month), int(day), 0, 0, 0, 0, zone)
			local = time.Date(local.Year(), local.Month(), local.Day(), int(m.micros/3_600_000_000),
				int(m.micros/60_000_000%60), int(m.micros/1_000_000%60), 0, zone)
			_, offset := local.Zone()
			m.offset = int64(offset)
		}
		return next(m)
	}
}

// appendDate appends a date as ISO 8601 has it: years of more than four digits have a sign.
func appendDate(b []byte, days int64) []byte {
	year, month, day := dateOf(days)
	if year > 9999 {
		b = append(b, '+')
	}
	b = appendPadded(b, year, 4)
	b = appendPadded(append(b, '-'), month, 2)
	return appendPadded(append(b, '-'), day, 2)
}

func appendPadded(b []byte, n int64, width int) []byte {
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	for limit, w := int64(10), 1; w < width; limit, w = limit*10, w+1 {
		if n < limit {
			b = append(b, '0')
		}
	}
	return strconv.AppendInt(b, n, 10)
}

// appendClock appends a time of day with a number of digits behind the second, or as many as it has where that is -1.
func appendClock(b []byte, micros int64, digits int) []byte {
	seconds := micros / 1_000_000
	b = appendPadded(b, seconds/3600, 2)
	b = appendPadded(append(b, ':'), seconds/60%60, 2)
	b = appendPadded(append(b, ':'), seconds%60, 2)
	fraction := micros % 1_000_000
	if digits == 0 || digits < 0 && fraction == 0 {
		return b
	}
	b = appendPadded(append(b, '.'), fraction, 6)
	for ; digits > 6; digits-- {
		b = append(b, '0')
	}
	if digits > 0 {
		return b[:len(b)-6+min(digits, 6)]
	}
	return bytes.TrimRight(b, "0")
}

// text is the moment in ISO 8601, in UTC.
func (m moment) text(digits int, suffix string) string {
	switch {
	case m.infinity > 0:
		return "infinity"
	case m.infinity < 0:
		return "-infinity"
	}
	m = m.utc()
	b := appendDate(make([]byte, 0, 40), m.days)
	b = appendClock(append(b, 'T'), m.micros, digits)
	return string(append(b, suffix...))
}

func decodeStampText(digits int) decoder {
	return func(b []byte) (any, error) {
		m, ok := parseMoment(b)
		if !ok {
			return nil, errMoment
		}
		return m.text(digits, "Z"), nil
	}
}

func decodeDateText(b []byte) (any, error) {
	m, ok := parseMoment(b)
	switch {
	case !ok:
		return nil, errDate
	case m.infinity != 0:
		return m.text(0, ""), nil
	}
	return string(append(appendDate(make([]byte, 0, 16), m.days), 'Z')), nil
}

// decodeTimeText is a time of day in UTC; 24:00:00 stays what it is there.
func decodeTimeText(b []byte) (any, error) {
	micros, rest, ok := parseClock(b)
	offset, ok2 := parseOffset(rest)
	if !ok || !ok2 {
		return nil, errTime
	}
	if micros != dayMicros || offset != 0 {
		micros = moment{micros: micros, offset: offset}.utc().micros
	}
	return string(append(appendClock(make([]byte, 0, 20), micros, -1), 'Z')), nil
}

// span is an interval: its parts are not in proportion to each other.
type span struct {
	years, months, days, micros int64
	infinity                    int
}

var spanUnits = map[string]func(*span) *int64{
	"year": func(s *span) *int64 { return &s.years }, "years": func(s *span) *int64 { return &s.years },
	"mon": func(s *span) *int64 { return &s.months }, "mons": func(s *span) *int64 { return &s.months },
	"day": func(s *span) *int64 { return &s.days }, "days": func(s *span) *int64 { return &s.days },
}

// parseSpan reads an interval such as "1 year -2 mons 3 days -04:05:06.789".
func parseSpan(b []byte) (s span, ok bool) {
	switch string(b) {
	case "infinity":
		return span{infinity: 1}, true
	case "-infinity":
		return span{infinity: -1}, true
	}
	for len(b) > 0 {
		neg := b[0] == '-'
		if neg || b[0] == '+' {
			b = b[1:]
		}
		n, rest, ok := number(b, 10)
		if !ok {
			return s, false
		}
		if len(rest) > 0 && rest[0] == ':' {
			s.micros, ok = spanClock(n, rest)
			if neg {
				s.micros = -s.micros
			}
			return s, ok
		}
		if len(rest) == 0 || rest[0] != ' ' {
			return s, false
		}
		word, after, _ := bytes.Cut(rest[1:], []byte(" "))
		at := spanUnits[string(word)]
		if at == nil {
			return s, false
		}
		if neg {
			n = -n
		}
		*at(&s) = n
		b = after
	}
	return s, true
}

func spanClock(hours int64, b []byte) (micros int64, ok bool) {
	minutes, b, ok1 := pair(b, ':', 59)
	seconds, b, ok2 := pair(b, ':', 59)
	if !ok1 || !ok2 {
		return 0, false
	}
	micros = ((hours*60+minutes)*60 + seconds) * 1_000_000
	if len(b) > 0 && b[0] == '.' {
		fraction, rest, ok := number(b[1:], 6)
		for range 6 - (len(b) - 1 - len(rest)) {
			fraction *= 10
		}
		return micros + fraction, ok && len(rest) == 0
	}
	return micros, len(b) == 0
}

// monthMicros is a month of 365.25/12 days.
const monthMicros = 2_629_800_000_000

func decodeSpanNumber(b []byte) (any, error) {
	s, ok := parseSpan(b)
	switch {
	case !ok:
		return nil, errInterval
	case s.infinity != 0:
		return nil, errDuration
	}
	// Each part is far below what a float carries exactly only for ordinary intervals, so a float finds the others.
	months := s.years*12 + s.months
	if math.Abs(float64(months)*monthMicros+float64(s.days)*dayMicros+float64(s.micros)) > math.MaxInt64/2 {
		return nil, errDuration
	}
	return months*monthMicros + s.days*dayMicros + s.micros, nil
}

// decodeSpanText is an interval as P1Y2M3DT4H5M6.7S, each number with its sign.
func decodeSpanText(b []byte) (any, error) {
	s, ok := parseSpan(b)
	switch {
	case !ok:
		return nil, errInterval
	case s.infinity > 0:
		return "infinity", nil
	case s.infinity < 0:
		return "-infinity", nil
	}
	out := make([]byte, 0, 48)
	minutes := s.micros / 60_000_000
	for _, part := range []struct {
		before string
		n      int64
		after  byte
	}{{"P", s.years, 'Y'}, {"", s.months, 'M'}, {"", s.days, 'D'}, {"T", minutes / 60, 'H'}, {"", minutes % 60, 'M'}} {
		out = append(strconv.AppendInt(append(out, part.before...), part.n, 10), part.after)
	}
	rest := s.micros % 60_000_000
	if rest < 0 {
		out, rest = append(out, '-'), -rest
	}
	out = strconv.AppendInt(out, rest/1_000_000, 10)
	if fraction := rest % 1_000_000; fraction != 0 {
		out = bytes.TrimRight(appendPadded(append(out, '.'), fraction, 6), "0")
	}
	return string(append(out, 'S')), nil
}

// Special values of structured times.
const (
	positiveInfinity = "POSITIVE_INFINITY"
	negativeInfinity = "NEGATIVE_INFINITY"
)

func special(infinity int) any {
	switch {
	case infinity > 0:
		return positiveInfinity
	case infinity < 0:
		return negativeInfinity
	}
	return nil
}

// clockValues are hour, minute, second and nanoseconds.
func clockValues(micros int64) []any {
	seconds := micros / 1_000_000
	return []any{int8(seconds / 3600), int8(seconds / 60 % 60), int8(seconds % 60), int32(micros % 1_000_000 * 1000)}
}

// decodeStructuredStamp fills the fields of a structured date or timestamp, whichever the schema is of. Of a date there
// are year, month, day and the special value; a timestamp has the clock between, a zoned one the offset and zone.
func decodeStructuredStamp(s *data.Schema, precision int) decoder {
	withClock, withZone := s.Field("hour") >= 0, s.Field("offsetSeconds") >= 0
	return func(b []byte) (any, error) {
		m, ok := parseMoment(b)
		if !ok {
			return nil, errMoment
		}
		v := data.New(s)
		v.Set("specialValue", special(m.infinity))
		if withClock {
			v.Set("precision", int32(precision))
		}
		if m.infinity != 0 {
			return v, nil
		}
		year, month, day := dateOf(m.days)
		copy(v.Values, []any{int32(year), int8(month), int8(day)})
		if withClock {
			copy(v.Values[3:], clockValues(m.micros))
		}
		if withZone {
			v.Set("offsetSeconds", int32(m.offset))
		}
		return v, nil
	}
}

func decodeStructuredTime(s *data.Schema, precision int) decoder {
	withZone := s.Field("offsetSeconds") >= 0
	return func(b []byte) (any, error) {
		micros, rest, ok := parseClock(b)
		offset, ok2 := parseOffset(rest)
		if !ok || !ok2 {
			return nil, errTime
		}
		v := data.New(s)
		copy(v.Values, clockValues(micros))
		if withZone {
			v.Set("offsetSeconds", int32(offset))
		}
		return v.Set("precision", int32(precision)), nil
	}
}

func decodeStructuredSpan(s *data.Schema, precision int) decoder {
	return func(b []byte) (any, error) {
		p, ok := parseSpan(b)
		if !ok {
			return nil, errInterval
		}
		if p.infinity != 0 {
			return nil, errDuration
		}
		minutes, rest := p.micros/60_000_000, p.micros%60_000_000
		hours := minutes / 60
		for _, n := range []int64{p.years, p.months, p.days, hours} {
			if n > math.MaxInt32 || n < math.MinInt32 {
				return nil, errRange
			}
		}
		return &data.StructValue{Schema: s, Values: []any{int32(p.years), int32(p.months), int32(p.days), int32(hours),
			int32(minutes % 60), rest / 1_000_000, int32(rest % 1_000_000 * 1000), int32(precision)}}, nil
	}
}
