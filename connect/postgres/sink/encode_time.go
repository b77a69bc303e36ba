package sink

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// Debezium's types of time.
const (
	tDate           = "io.debezium.time.Date"
	tTime           = "io.debezium.time.Time"
	tMicroTime      = "io.debezium.time.MicroTime"
	tNanoTime       = "io.debezium.time.NanoTime"
	tTimestamp      = "io.debezium.time.Timestamp"
	tMicroTimestamp = "io.debezium.time.MicroTimestamp"
	tNanoTimestamp  = "io.debezium.time.NanoTimestamp"
	tMicroDuration  = "io.debezium.time.MicroDuration"
	tNanoDuration   = "io.debezium.time.NanoDuration"
)

const (
	usPerSecond = int64(1e6)
	usPerDay    = 86400 * usPerSecond
)

// temporal is the encoder of days, times of day, points in time and intervals.
func (c *codec) temporal(s *data.Schema, oid uint32) encoder {
	if s.Type == data.String {
		return c.timeText(oid)
	}
	if s.Type == data.Struct && strings.HasPrefix(s.Name, structuredPrefix) {
		return structuredTime(oid)
	}
	if s.Type != data.Int32 && s.Type != data.Int64 {
		return nil
	}
	switch oid {
	case oidDate:
		if s.Name == data.Date || s.Name == tDate {
			return encodeDays
		}
	case oidTime, oidTimetz:
		return c.timeOfDay(s, oid)
	case oidTimestamp, oidTimestamptz:
		return c.pointInTime(s, oid)
	case oidInterval:
		switch s.Name {
		case tMicroDuration:
			return encodeMicroDuration
		case tNanoDuration:
			return func(dst []byte, v any) ([]byte, error) {
				n, ok := wholeNumber(v)
				if !ok {
					return dst, errUnfit
				}
				return encodeMicroDuration(dst, n/1000)
			}
		}
	}
	return nil
}

func encodeDays(dst []byte, v any) ([]byte, error) {
	n, ok := wholeNumber(v)
	switch {
	case !ok:
		return dst, errUnfit
	case n >= math.MaxInt32:
		return append(dst, "infinity"...), nil
	case n <= math.MinInt32:
		return append(dst, "-infinity"...), nil
	}
	dst, bc := appendDate(dst, n)
	return append(dst, bc...), nil
}

// appendDate writes the day that is n days after 1970-01-01. What it returns beside comes at the very end of the text.
func appendDate(dst []byte, n int64) (out []byte, bc string) {
	// Howard Hinnant's way over eras of 400 years: it takes any number of days.
	n += 719468
	era := floorDiv(n, 146097)
	doe := n - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day, month, year := doy-(153*mp+2)/5+1, mp+3, yoe+era*400
	if month > 12 {
		month -= 12
		year++
	}
	if year <= 0 {
		year, bc = 1-year, " BC"
	}
	dst = appendPadded(dst, year, 4)
	dst = appendPadded(append(dst, '-'), month, 2)
	return appendPadded(append(dst, '-'), day, 2), bc
}

// daysOf is the number of a day in the calendar of astronomers, which has a year 0.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	doy := (153*(month-3)+2)/5 + day - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func appendPadded(dst []byte, n int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if n < limit {
			dst = append(dst, '0')
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, n, 10)
}

// appendClock writes microseconds of a day, up to and with 24:00.
func appendClock(dst []byte, us int64) []byte {
	dst = appendPadded(dst, us/3600/usPerSecond, 2)
	dst = appendPadded(append(dst, ':'), us/60/usPerSecond%60, 2)
	dst = appendPadded(append(dst, ':'), us/usPerSecond%60, 2)
	if us %= usPerSecond; us != 0 {
		dst = appendPadded(append(dst, '.'), us, 6)
	}
	return dst
}

// appendPoint writes a point in time, given as days and microseconds of the day.
func appendPoint(dst []byte, days, us int64, zone string) []byte {
	dst, bc := appendDate(dst, days)
	dst = appendClock(append(dst, ' '), us)
	return append(append(dst, zone...), bc...)
}

func (c *codec) timeOfDay(s *data.Schema, oid uint32) encoder {
	unit := map[string]int64{data.Time: 1000, tTime: 1000, tMicroTime: 1, tNanoTime: -1000}[s.Name]
	if unit == 0 {
		return nil
	}
	zone := ""
	if oid == oidTimetz {
		zone = "+00"
	}
	shift := s.Name == data.Time && c.zone != time.UTC && oid == oidTime
	return func(dst []byte, v any) ([]byte, error) {
		n, ok := wholeNumber(v)
		if !ok {
			return dst, errUnfit
		}
		us := int64(-1)
		if n >= 0 && n <= usPerDay*1000 { // the most that the finest unit counts, so that nothing overflows
			us = scaled(n, unit)
		}
		if us < 0 || us > usPerDay {
			return dst, fmt.Errorf("the time is outside the day: %w", errUnfit)
		}
		if shift {
			_, offset := time.Unix(us/usPerSecond, 0).In(c.zone).Zone()
			us = ((us+int64(offset)*usPerSecond)%usPerDay + usPerDay) % usPerDay
		}
		return append(appendClock(dst, us), zone...), nil
	}
}

// scaled brings a number to microseconds: times unit, or divided by a negative one.
func scaled(n, unit int64) int64 {
	if unit < 0 {
		return floorDiv(n, -unit)
	}
	return n * unit
}

func (c *codec) pointInTime(s *data.Schema, oid uint32) encoder {
	perDay := int64(0) // how many of the unit a day has
	high, low := postgres.InfinityMicros, postgres.NegInfinityMicros
	switch s.Name {
	case data.Timestamp, tTimestamp:
		perDay, high, low = 86400*1000, postgres.InfinityMillis, postgres.NegInfinityMillis
	case tMicroTimestamp:
		perDay = usPerDay
	case tNanoTimestamp:
		perDay, high, low = usPerDay*1000, postgres.InfinityNanos, postgres.NegInfinityNanos
	default:
		return nil
	}
	zone := ""
	if oid == oidTimestamptz {
		zone = "+00"
	}
	shift := s.Name == data.Timestamp && c.zone != time.UTC && oid == oidTimestamp
	return func(dst []byte, v any) ([]byte, error) {
		n, ok := wholeNumber(v)
		switch {
		case !ok:
			return dst, errUnfit
		case n == postgres.InfinityMicros || n == high:
			return append(dst, "infinity"...), nil
		case n == postgres.NegInfinityMicros || n == low:
			return append(dst, "-infinity"...), nil
		}
		days := floorDiv(n, perDay)
		rest := n - days*perDay
		us := rest * (usPerDay / min(perDay, usPerDay)) / (max(perDay, usPerDay) / usPerDay)
		if shift {
			_, offset := time.UnixMilli(n).In(c.zone).Zone()
			us += int64(offset) * usPerSecond
			more := floorDiv(us, usPerDay)
			days, us = days+more, us-more*usPerDay
		}
		return appendPoint(dst, days, us, zone), nil
	}
}

func encodeMicroDuration(dst []byte, v any) ([]byte, error) {
	n, ok := wholeNumber(v)
	if !ok {
		return dst, errUnfit
	}
	// Seconds and their fraction apart: one number of microseconds can be more than the server takes.
	dst = strconv.AppendInt(dst, n/usPerSecond, 10)
	dst = append(dst, " seconds "...)
	dst = strconv.AppendInt(dst, n%usPerSecond, 10)
	return append(dst, " microseconds"...), nil
}

// timeText is the encoder of times in words. ISO 8601 is brought into the form that PostgreSQL has for years before 1
// and beyond 9999, and into UTC where the column has no zone, which would ignore it. All else is for the server to
// read.
func (c *codec) timeText(oid uint32) encoder {
	return func(dst []byte, v any) ([]byte, error) {
		s, ok := v.(string)
		if !ok {
			return dst, errUnfit
		}
		switch oid {
		case oidTimestamp, oidTimestamptz:
			if p, ok := parseISO(s); ok {
				return p.append(dst, oid == oidTimestamptz), nil
			}
		case oidDate:
			if p, ok := parseISO(strings.TrimSuffix(s, "Z")); ok && !p.clock {
				return encodeDays(dst, p.days)
			}
		case oidTime:
			return c.appendText(dst, strings.TrimSuffix(s, "Z"))
		}
		return c.appendText(dst, s)
	}
}

// isoPoint is a point in time as ISO 8601 writes it.
type isoPoint struct {
	days, us int64
	clock    bool  // it says a time of day
	zoned    bool  // and an offset from UTC
	offset   int64 // in seconds
}

func (p *isoPoint) append(dst []byte, zoned bool) []byte {
	us := p.us - p.offset*usPerSecond
	more := int64(0)
	if us < 0 || us > usPerDay || us == usPerDay && p.offset != 0 {
		more = floorDiv(us, usPerDay)
	}
	zone := ""
	if zoned {
		zone = "+00"
	}
	return appendPoint(dst, p.days+more, us-more*usPerDay, zone)
}

// parseISO reads [+-]Y-MM-DD, with Thh:mm[:ss[.f]][Z|+hh[:mm[:ss]]] behind it or a space in place of the T.
func parseISO(s string) (p isoPoint, ok bool) {
	sc := scanner{s: s, ok: true}
	sign := int64(1)
	if sc.take('-') {
		sign = -1
	} else {
		sc.take('+')
	}
	year := sc.number(4, 9) * sign
	sc.must('-')
	month := sc.number(2, 2)
	sc.must('-')
	day := sc.number(2, 2)
	if !sc.ok || month < 1 || month > 12 || day < 1 || day > 31 {
		return p, false
	}
	p.days = daysOf(year, month, day)
	if back, _ := appendDate(nil, p.days); string(back[len(back)-2:]) != fmt.Sprintf("%02d", day) {
		return p, false // there is no such day
	}
	if sc.end() {
		return p, true
	}
	if !sc.take('T') && !sc.take(' ') {
		return p, false
	}
	p.clock = true
	p.us = sc.clock()
	if !sc.end() {
		p.zoned = true
		p.offset = sc.offset()
	}
	return p, sc.ok && sc.end()
}

// scanner reads a text from its front; ok is false from the first surprise on.
type scanner struct {
	s  string
	ok bool
}

func (s *scanner) end() bool { return s.s == "" }

func (s *scanner) take(b byte) bool {
	if s.s == "" || s.s[0] != b {
		return false
	}
	s.s = s.s[1:]
	return true
}

func (s *scanner) must(b byte) { s.ok = s.take(b) && s.ok }

func (s *scanner) number(least, most int) (n int64) {
	i := 0
	for ; i < len(s.s) && i < most && s.s[i] >= '0' && s.s[i] <= '9'; i++ {
		n = n*10 + int64(s.s[i]-'0')
	}
	s.ok = s.ok && i >= least
	s.s = s.s[i:]
	return n
}

// clock reads hh:mm[:ss[.f]] as microseconds; what is finer is cut off.
func (s *scanner) clock() (us int64) {
	hour := s.number(2, 2)
	s.must(':')
	minute := s.number(2, 2)
	second, fraction := int64(0), int64(0)
	if s.take(':') {
		second = s.number(2, 2)
		if s.take('.') {
			digits := s.s
			s.number(1, 18)
			digits = digits[:len(digits)-len(s.s)]
			fraction, _ = strconv.ParseInt((digits + "000000")[:6], 10, 64)
		}
	}
	us = ((hour*60+minute)*60+second)*usPerSecond + fraction
	s.ok = s.ok && minute < 60 && second < 60 && us <= usPerDay
	return us
}

// offset reads Z, +hh, +hhmm, +hh:mm or +hh:mm:ss as seconds east of UTC.
func (s *scanner) offset() int64 {
	if s.take('Z') {
		return 0
	}
	sign := int64(1)
	if s.take('-') {
		sign = -1
	} else {
		s.must('+')
	}
	seconds := s.number(2, 2) * 3600
	for unit := int64(60); unit > 0 && !s.end(); unit /= 60 {
		s.take(':')
		seconds += s.number(2, 2) * unit
	}
	return seconds * sign
}

// structuredPrefix begins the names of structs that hold the parts of times.
const structuredPrefix = "io.debezium.time.Structured"

// structuredTime puts the parts of a time together.
func structuredTime(oid uint32) encoder {
	return func(dst []byte, v any) ([]byte, error) {
		s, ok := v.(*data.StructValue)
		if !ok {
			return dst, errUnfit
		}
		if special, _ := s.Get("specialValue"); special != nil {
			switch special {
			case "POSITIVE_INFINITY":
				return append(dst, "infinity"...), nil
			case "NEGATIVE_INFINITY":
				return append(dst, "-infinity"...), nil
			}
			return dst, errUnfit
		}
		part := func(name string) int64 {
			v, _ := s.Get(name)
			n, _ := wholeNumber(v)
			return n
		}
		if oid == oidInterval {
			for _, unit := range []string{"years", "months", "days", "hours", "minutes", "seconds"} {
				dst = append(strconv.AppendInt(dst, part(unit), 10), ' ')
				dst = append(append(dst, unit...), ' ')
			}
			return append(strconv.AppendInt(dst, part("nanos")/1000, 10), " microseconds"...), nil
		}
		us := ((part("hour")*60+part("minute"))*60+part("second"))*usPerSecond + part("nanos")/1000
		zone := ""
		if oid == oidTimetz || oid == oidTimestamptz {
			zone = zoneText(part("offsetSeconds"))
		}
		if oid == oidTime || oid == oidTimetz {
			return append(appendClock(dst, us), zone...), nil
		}
		days := daysOf(part("year"), part("month"), part("day"))
		if oid == oidDate {
			return encodeDays(dst, days)
		}
		return appendPoint(dst, days, us, zone), nil
	}
}

// zoneText is an offset from UTC, in seconds, as PostgreSQL reads it.
func zoneText(seconds int64) string {
	sign := '+'
	if seconds < 0 {
		sign, seconds = '-', -seconds
	}
	return fmt.Sprintf("%c%02d:%02d:%02d", sign, seconds/3600, seconds/60%60, seconds%60)
}
