package postgres

import "millrace/connect/data"

// digitsOf is how many digits behind the second a type with this modifier has; without one it has six.
func digitsOf(typmod int32) int {
	if typmod < 0 || typmod > 6 {
		return 6
	}
	return int(typmod)
}

// temporal maps dates and times as time.precision.mode has them.
func (m *Mapper) temporal(s *data.Schema, name string, typmod int32) (c codec, ok bool) {
	structured := m.m.Time == "structured"
	switch digits := digitsOf(typmod); name {
	case "date":
		return m.date(s), true
	case "time":
		return m.clock(s, digits), true
	case "timestamp":
		return m.stamp(s, digits), true
	case "timetz":
		if structured {
			fillStructured(s, "StructuredZonedTime", clockFields, offsetField, precisionField)
			return codec{decodeStructuredTime(s, digits), nil}, true
		}
		logical(s, data.String, TimePrefix+"ZonedTime")
		return codec{decodeTimeText, nil}, true
	case "timestamptz":
		if structured {
			fillStructured(s, "StructuredZonedTimestamp", dateFields, clockFields, offsetField, zoneField, specialField,
				precisionField)
			return codec{decodeStructuredStamp(s, digits), nil}, true
		}
		logical(s, data.String, TimePrefix+"ZonedTimestamp")
		return codec{decodeStampText(digits), nil}, true
	case "interval":
		return m.interval(s, structured), true
	}
	return codec{}, false
}

func (m *Mapper) date(s *data.Schema) codec {
	switch m.m.Time {
	case "connect":
		logical(s, data.Int32, data.Date)
	case "isostring":
		logical(s, data.String, TimePrefix+"IsoDate")
		return codec{decodeDateText, nil}
	case "structured":
		fillStructured(s, "StructuredDate", dateFields, specialField)
		return codec{decodeStructuredStamp(s, 0), nil}
	default:
		logical(s, data.Int32, TimePrefix+"Date")
	}
	return codec{decodeDate, nil}
}

func (m *Mapper) clock(s *data.Schema, digits int) codec {
	switch mode := m.m.Time; {
	case mode == "connect":
		logical(s, data.Int32, data.Time)
		return codec{decodeTime(dayMillis, true), nil}
	case mode == "isostring":
		logical(s, data.String, TimePrefix+"IsoTime")
		return codec{decodeTimeText, nil}
	case mode == "structured":
		fillStructured(s, "StructuredTime", clockFields, precisionField)
		return codec{decodeStructuredTime(s, digits), nil}
	case mode == "nanoseconds":
		logical(s, data.Int64, TimePrefix+"NanoTime")
		return codec{decodeTime(dayNanos, false), nil}
	case (mode == "" || mode == "adaptive") && digits <= 3:
		logical(s, data.Int32, TimePrefix+"Time")
		return codec{decodeTime(dayMillis, true), nil}
	}
	logical(s, data.Int64, TimePrefix+"MicroTime")
	return codec{decodeTime(dayMicros, false), nil}
}

func (m *Mapper) stamp(s *data.Schema, digits int) codec {
	switch mode := m.m.Time; {
	case mode == "connect":
		logical(s, data.Int64, data.Timestamp)
		return codec{decodeStamp(dayMillis, InfinityMillis, NegInfinityMillis), nil}
	case mode == "isostring":
		logical(s, data.String, TimePrefix+"IsoTimestamp")
		return codec{decodeStampText(-1), nil}
	case mode == "structured":
		fillStructured(s, "StructuredTimestamp", dateFields, clockFields, specialField, precisionField)
		return codec{decodeStructuredStamp(s, digits), nil}
	case mode == "nanoseconds":
		logical(s, data.Int64, TimePrefix+"NanoTimestamp")
		return codec{decodeStamp(dayNanos, InfinityNanos, NegInfinityNanos), nil}
	case mode != "microseconds" && digits <= 3:
		logical(s, data.Int64, TimePrefix+"Timestamp")
		return codec{decodeStamp(dayMillis, InfinityMillis, NegInfinityMillis), nil}
	}
	logical(s, data.Int64, TimePrefix+"MicroTimestamp")
	return codec{decodeStamp(dayMicros, InfinityMicros, NegInfinityMicros), nil}
}

func (m *Mapper) interval(s *data.Schema, structured bool) codec {
	switch {
	case structured:
		fillStructured(s, "StructuredDuration", spanFields, precisionField)
		return codec{decodeStructuredSpan(s, 6), nil}
	case m.m.Interval == "string":
		logical(s, data.String, TimePrefix+"Interval")
		return codec{decodeSpanText, nil}
	}
	logical(s, data.Int64, TimePrefix+"MicroDuration")
	return codec{decodeSpanNumber, nil}
}

// typed is the name and type of a field of a structured time.
type typed struct {
	name string
	t    data.Type
}

var (
	dateFields     = []typed{{"year", data.Int32}, {"month", data.Int8}, {"day", data.Int8}}
	clockFields    = []typed{{"hour", data.Int8}, {"minute", data.Int8}, {"second", data.Int8}, {"nanos", data.Int32}}
	offsetField    = []typed{{"offsetSeconds", data.Int32}}
	zoneField      = []typed{{"zoneId", data.String}}
	specialField   = []typed{{"specialValue", data.String}}
	precisionField = []typed{{"precision", data.Int32}}
	spanFields     = []typed{{"years", data.Int32}, {"months", data.Int32}, {"days", data.Int32}, {"hours", data.Int32},
		{"minutes", data.Int32}, {"seconds", data.Int64}, {"nanos", data.Int32}}
)

func fillStructured(s *data.Schema, name string, groups ...[]typed) {
	var fields []data.Field
	for _, g := range groups {
		for _, f := range g {
			fields = append(fields, data.Field{Name: f.name, Schema: &data.Schema{Type: f.t, Optional: true}})
		}
	}
	logical(s, data.Struct, TimePrefix+name, fields...)
}
